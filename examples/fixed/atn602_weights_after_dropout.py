import torch
from torch import nn


class SelfAttention(nn.Module):
    """x (batch, time, d_model) → output of the same shape, and the weights (batch, heads, time, time)."""

    def __init__(self, d_model: int, heads: int, dropout: float) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads = heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, time, d_model = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / k.shape[-1] ** 0.5).softmax(dim=-1)
        context = self.dropout(weights) @ v
        return self.out(context.transpose(1, 2).reshape(batch, time, d_model)), weights


def build() -> nn.Module:
    return SelfAttention(d_model=26, heads=2, dropout=0.2)
