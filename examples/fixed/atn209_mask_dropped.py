import torch
from torch import nn
from torch.nn import functional as F

import attn_guard


@attn_guard.contract(masks={"key_padding_mask": "ignore"})
class SelfAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim={dim} does not divide by heads={heads}")
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(
        self, x: torch.Tensor, key_padding_mask: torch.Tensor, need_weights: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        batch, time, dim = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        keep = ~key_padding_mask[:, None, None]
        weights = None
        if need_weights:
            scores = q @ k.mT * q.shape[-1] ** -0.5
            weights = scores.masked_fill(~keep, torch.finfo(scores.dtype).min).softmax(dim=-1)
            y = weights @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return self.proj(y.transpose(1, 2).reshape(batch, time, dim)), weights


def build() -> nn.Module:
    return SelfAttention(dim=22, heads=2)
