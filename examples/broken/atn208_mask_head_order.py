import torch
from torch import nn

import attn_guard


@attn_guard.contract(masks={"mask": "ignore"})
class PairwiseAttention(nn.Module):
    """True in mask (batch, time) marks padding; the built-in layer takes one mask per head of each sample."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention = nn.MultiheadAttention(d_model, heads, batch_first=True)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = mask[:, None, :].expand(-1, x.size(1), -1)
        hidden = hidden.repeat(self.heads, 1, 1)  # <- ATN208
        context, _ = self.attention(x, x, x, attn_mask=hidden, need_weights=False)  # <- ATN208
        return context


def build() -> nn.Module:
    return PairwiseAttention(d_model=14, heads=2)
