import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim={dim} does not divide by heads={heads}")
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_kv = nn.Linear(dim, 2 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, dim = x.shape
        q, k, v = (
            part.unflatten(-1, (self.heads, dim // self.heads)).transpose(1, 2)
            for part in (self.to_q(x), *self.to_kv(x).chunk(2, dim=-1))
        )
        scores = torch.einsum("bhid,bhjd->bhij", q, k) * self.scale
        context = torch.einsum("bhij,bhjd->bhid", scores.softmax(dim=-1), v)
        context = context.transpose(1, 2).reshape(batch, time, dim)
        return self.to_out(context)


def build() -> nn.Module:
    return Attention(dim=33, heads=3)
