import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads = heads
        self.head_dim = d_model // heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, d_model = x.shape
        q, k, v = torch.chunk(self.qkv(x), 3, dim=-1)
        q = q.reshape(batch, time, self.heads, self.head_dim).transpose(1, 2)
        k = k.reshape(batch, time, self.heads, self.head_dim).transpose(1, 2)
        v = v.reshape(batch, time, self.heads, self.head_dim).transpose(1, 2)

        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.head_dim)
        weights = self.dropout(scores.softmax(dim=-1))
        context = torch.matmul(weights, v).transpose(1, 2)
        return self.out(context.view(batch, time, d_model))  # <- ATN302


def build() -> nn.Module:
    return Attention(d_model=39, heads=3)
