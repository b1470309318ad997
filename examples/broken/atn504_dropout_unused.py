import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, d_model: int, heads: int, dropout: float) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads = heads
        self.head_dim = d_model // heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.dropout = nn.Dropout(dropout)  # <- ATN504
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, d_model = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * self.head_dim**-0.5
        weights = scores.softmax(dim=-1)
        context = weights @ v
        return self.proj(context.transpose(1, 2).reshape(batch, time, d_model))


def build() -> nn.Module:
    return SelfAttention(d_model=24, heads=2, dropout=0.4)
