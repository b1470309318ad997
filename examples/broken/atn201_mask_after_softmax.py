import torch
from torch import nn

import attn_guard


@attn_guard.contract(causal=True)
class CausalAttention(nn.Module):
    keep: torch.Tensor

    def __init__(self, dim: int, num_heads: int, max_length: int = 64) -> None:
        super().__init__()
        if dim % num_heads:
            raise ValueError(f"dim={dim} does not divide by num_heads={num_heads}")
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim)
        self.register_buffer("keep", torch.ones(max_length, max_length).tril().bool(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, dim = x.shape
        qkv = self.qkv(x).reshape(batch, time, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)

        attn = (q * self.scale) @ k.transpose(-2, -1)
        attn = attn.softmax(dim=-1)
        attn = attn.masked_fill(~self.keep[:time, :time], 0.0)  # <- ATN201
        return self.proj((attn @ v).transpose(1, 2).reshape(batch, time, dim))


def build() -> nn.Module:
    return CausalAttention(dim=26, num_heads=2)
