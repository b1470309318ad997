import torch
from torch import nn
from torch.nn import functional as F

import attn_guard


@attn_guard.contract(causal=False)
class ImageAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim={dim} does not divide by heads={heads}")
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        batch, count, dim = patches.shape
        q, k, v = self.qkv(patches).view(batch, count, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=count > 1)  # <- ATN217
        return self.proj(y.transpose(1, 2).reshape(batch, count, dim))


def build() -> nn.Module:
    return ImageAttention(dim=22, heads=2)
