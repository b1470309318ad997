import torch
from torch import nn

import attn_guard


@attn_guard.contract(masks={"key_padding_mask": "ignore"})
class EncoderBlock(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.attention = nn.MultiheadAttention(d_model, heads, batch_first=True)

    def forward(self, x: torch.Tensor, key_padding_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(x)
        context, _ = self.attention(hidden, hidden, hidden, need_weights=False)  # <- ATN212
        return x + context


def build() -> nn.Module:
    return EncoderBlock(d_model=21, heads=3)
