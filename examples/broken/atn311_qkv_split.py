import torch
import torch.nn.functional as F
from torch import nn


class GroupedQueryAttention(nn.Module):
    def __init__(self, dim: int, num_heads: int, num_kv_heads: int) -> None:
        super().__init__()
        if dim % num_heads or num_heads % num_kv_heads:
            raise ValueError(f"dim={dim} does not divide by num_heads={num_heads}, or these by num_kv_heads")
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, dim // num_heads
        self.q_size, self.kv_size = dim, num_kv_heads * self.head_dim
        self.qkv_proj = nn.Linear(dim, self.q_size + 2 * self.kv_size, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, _ = x.shape
        q, k, v = self.qkv_proj(x).chunk(3, dim=-1)  # <- ATN311
        q = q.reshape(batch, time, self.num_heads, self.head_dim).transpose(1, 2)
        k, v = (part.reshape(batch, time, self.num_kv_heads, self.head_dim).transpose(1, 2) for part in (k, v))
        context = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(context.transpose(1, 2).flatten(2))


def build() -> nn.Module:
    return GroupedQueryAttention(dim=28, num_heads=4, num_kv_heads=1)
