import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % heads != 0:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.d_model, self.heads, self.head_dim = d_model, heads, d_model // heads
        self.to_query = nn.Linear(d_model, d_model)
        self.to_key = nn.Linear(d_model, d_model)
        self.to_value = nn.Linear(d_model, d_model)
        self.to_output = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, _ = x.shape
        query = self.to_query(x).view(batch, time, self.heads, self.head_dim)
        key = self.to_key(x).view(batch, time, self.heads, self.head_dim)
        value = self.to_value(x).view(batch, time, self.heads, self.head_dim)

        scores = torch.einsum("bqhd,bkhd->bhqk", query, key) / self.d_model**0.5  # <- ATN102
        weights = torch.softmax(scores, dim=-1)
        context = torch.einsum("bhqk,bkhd->bqhd", weights, value)
        return self.to_output(context.reshape(batch, time, self.d_model))


def build() -> nn.Module:
    return MultiHeadAttention(d_model=21, heads=3)
