import torch
from torch import nn
from torch.nn import functional as F


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)
    return torch.cat((-right, left), dim=-1)


def rotary(x: torch.Tensor) -> torch.Tensor:
    """Turns (batch, heads, time, head_dim) by halves."""
    head_dim = x.shape[-1]
    rates = 10000 ** (-torch.arange(0, head_dim, 2) / head_dim)
    angle = (torch.arange(x.shape[-2])[:, None] * rates).repeat(1, 2)
    return x * angle.cos() + rotate_half(x) * angle.sin()


class RotaryAttention(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % (2 * heads) != 0:
            raise ValueError(f"d_model={d_model} does not divide by 2 * heads={2 * heads}")
        self.heads = heads
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        context = F.scaled_dot_product_attention(rotary(q), rotary(k), v)
        return self.out(context.transpose(1, 2).flatten(2))


def build() -> nn.Module:
    return RotaryAttention(d_model=42, heads=3)
