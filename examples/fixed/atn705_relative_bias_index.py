import torch
from torch import nn


class LinearlyBiasedAttention(nn.Module):
    slopes: torch.Tensor

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % heads != 0:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads = heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.register_buffer("slopes", 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        place = torch.arange(x.size(1), device=x.device)
        distance = place[:, None] - place
        scores = q @ k.mT * q.size(-1) ** -0.5
        scores = scores - self.slopes[:, None, None] * distance
        weights = scores.masked_fill(distance < 0, float("-inf")).softmax(dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def build() -> nn.Module:
    return LinearlyBiasedAttention(d_model=22, heads=2)
