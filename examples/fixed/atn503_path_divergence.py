import torch
from torch import nn
from torch.nn import functional as F

import attn_guard


@attn_guard.contract(scale=1 / 11)
class SelfAttention(nn.Module):
    def __init__(self, dim: int, heads: int, fused: bool = False) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim={dim} does not divide by heads={heads}")
        self.heads = heads
        self.scale = heads / dim  # muP
        self.fused = fused
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, dim = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        else:
            weights = (q @ k.mT * self.scale).softmax(dim=-1)
            y = weights @ v
        return self.proj(y.transpose(1, 2).reshape(batch, time, dim))


def build() -> nn.Module:
    return SelfAttention(dim=22, heads=2)
