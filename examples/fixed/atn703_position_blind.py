import torch
from torch import nn
from torch.nn import functional as F

import attn_guard


@attn_guard.contract(positions=True)
class Encoder(nn.Module):
    def __init__(self, d_model: int, heads: int, longest: int = 32) -> None:
        super().__init__()
        if d_model % heads != 0:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads = heads
        self.places = nn.Parameter(torch.randn(longest, d_model) * 0.02)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.places[: x.size(1)]
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        context = F.scaled_dot_product_attention(q, k, v)
        return self.out(context.transpose(1, 2).flatten(2))


def build() -> nn.Module:
    return Encoder(d_model=21, heads=3)
