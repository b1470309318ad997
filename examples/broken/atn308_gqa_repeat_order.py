import torch
from torch import nn


class GroupedQueryAttention(nn.Module):
    def __init__(self, dim: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        if dim % heads or heads % kv_heads:
            raise ValueError(f"dim={dim} does not divide by heads={heads}, or these by kv_heads={kv_heads}")
        self.kv_heads, self.groups, self.head_dim = kv_heads, heads // kv_heads, dim // heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, _ = x.shape
        q = self.wq(x).view(batch, time, self.kv_heads, self.groups, self.head_dim).flatten(2, 3).transpose(1, 2)
        k = self.wk(x).view(batch, time, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.wv(x).view(batch, time, self.kv_heads, self.head_dim).transpose(1, 2)
        k = k.repeat(1, self.groups, 1, 1)  # <- ATN308
        v = v.repeat(1, self.groups, 1, 1)  # <- ATN308
        context = (q @ k.mT * self.head_dim**-0.5).softmax(dim=-1) @ v
        return self.wo(context.transpose(1, 2).reshape(batch, time, -1))


def build() -> nn.Module:
    return GroupedQueryAttention(dim=42, heads=6, kv_heads=2)
