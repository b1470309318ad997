import torch
from torch import nn


class EinsumAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim={dim} does not divide by heads={heads}")
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)) for part in self.to_qkv(x).chunk(3, dim=-1))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * self.scale
        weights = scores.softmax(dim=-1)
        context = torch.einsum("bhij,bihd->bihd", weights, v)  # <- ATN307
        return self.to_out(context.flatten(2))


def build() -> nn.Module:
    return EinsumAttention(dim=26, heads=2)
