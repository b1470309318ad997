import torch
from torch import nn
from torch.nn import functional as F

import attn_guard


@attn_guard.contract(causal=True)
class CausalSelfAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim={dim} does not divide by heads={heads}")
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, dim = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        keep = torch.ones(time, time, dtype=torch.bool, device=x.device).tril(diagonal=1)  # <- ATN215
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)  # <- ATN215
        return self.proj(y.transpose(1, 2).reshape(batch, time, dim))


def build() -> nn.Module:
    return CausalSelfAttention(dim=22, heads=2)
