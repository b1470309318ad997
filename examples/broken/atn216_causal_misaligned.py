import torch
from torch import nn
from torch.nn import functional as F

import attn_guard

Cache = tuple[torch.Tensor, torch.Tensor]


@attn_guard.contract(causal=True, cache="past")
class CachedAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim={dim} does not divide by heads={heads}")
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor, past: Cache | None = None) -> tuple[torch.Tensor, Cache]:
        batch, time, dim = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # <- ATN216
        return self.proj(y.transpose(1, 2).reshape(batch, time, dim)), (k, v)


def build() -> nn.Module:
    return CachedAttention(dim=22, heads=2)


def inputs() -> tuple[tuple[torch.Tensor, Cache], dict[str, object]]:
    torch.manual_seed(0)
    past = torch.randn(3, 2, 7, 11), torch.randn(3, 2, 7, 11)
    return (torch.randn(3, 5, 22), past), {}
