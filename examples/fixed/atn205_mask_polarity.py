import torch
import torch.nn.functional as F
from torch import nn

import attn_guard


@attn_guard.contract(masks={"key_padding_mask": "ignore"})
class SelfAttention(nn.Module):
    """True in key_padding_mask marks padding, as in nn.MultiheadAttention."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads = heads
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor, key_padding_mask: torch.Tensor) -> torch.Tensor:
        batch, time, d_model = x.shape
        query, key, value = self.in_proj(x).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mask = ~key_padding_mask[:, None, None, :]
        context = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.out_proj(context.transpose(1, 2).reshape(batch, time, d_model))


def build() -> nn.Module:
    return SelfAttention(d_model=26, heads=2)
