import torch
from torch import nn
from torch.nn import functional as F


def rotary(x: torch.Tensor) -> torch.Tensor:
    """Turns (batch, heads, time, head_dim) by halves."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[-2])[:, None] * 10000 ** (-torch.arange(half) / half)  # <- ATN702
    cos, sin = angle.cos(), angle.sin()
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)  # <- ATN702


class RotaryAttention(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % (2 * heads) != 0:
            raise ValueError(f"d_model={d_model} does not divide by 2 * heads={2 * heads}")
        self.heads = heads
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in self.qkv(x).chunk(3, dim=-1))
        q, k = rotary(q), rotary(k)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        context = F.scaled_dot_product_attention(q, k, v)
        return self.out(context.transpose(1, 2).flatten(2))


def build() -> nn.Module:
    return RotaryAttention(d_model=42, heads=3)
