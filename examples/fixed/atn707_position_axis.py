import math

import torch
from torch import nn


class PositionalEncoding(nn.Module):
    table: torch.Tensor

    def __init__(self, d_model: int, longest: int = 64) -> None:
        super().__init__()
        place = torch.arange(longest)[:, None]
        rate = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        table = torch.zeros(longest, 1, d_model)
        table[:, 0, 0::2] = torch.sin(place * rate)
        table[:, 0, 1::2] = torch.cos(place * rate)
        self.register_buffer("table", table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table[: x.size(1)].transpose(0, 1)


class Encoder(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.positions = PositionalEncoding(d_model)
        self.attention = nn.MultiheadAttention(d_model, heads, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.positions(x)
        return self.attention(x, x, x, need_weights=False)[0]


def build() -> nn.Module:
    return Encoder(d_model=22, heads=2)
