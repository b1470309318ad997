import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads = heads
        self.scale = (d_model // heads) ** -0.5
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, d_model = x.shape
        query, key, value = (
            part.view(batch, time, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)
        )
        scores = query @ key.transpose(-2, -1) * self.scale
        context = scores.softmax(dim=-1) @ value
        return self.out(context.transpose(1, 2).reshape(batch, time, d_model))


def build() -> nn.Module:
    return Attention(d_model=22, heads=2)
