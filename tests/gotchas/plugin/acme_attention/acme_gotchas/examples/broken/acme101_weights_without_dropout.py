import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.scale = width**-0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).mT * self.scale
        weights = scores.softmax(dim=-1)  # <- ACME101
        return weights @ self.value(x)


def build() -> nn.Module:
    return Attention(width=7)
