import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads  # <- ATN301
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key = nn.Linear(embed_dim, embed_dim)
        self.value = nn.Linear(embed_dim, embed_dim)
        self.output = nn.Linear(embed_dim, embed_dim)

    def split_heads(self, tensor: torch.Tensor) -> torch.Tensor:
        batch, time, _ = tensor.shape
        return tensor.reshape(batch, time, self.num_heads, self.head_dim).transpose(1, 2)  # <- ATN301

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query = self.split_heads(self.query(x))
        key = self.split_heads(self.key(x))
        value = self.split_heads(self.value(x))
        scores = query @ key.mT * self.head_dim**-0.5
        context = torch.softmax(scores, dim=-1) @ value
        return self.output(context.transpose(1, 2).flatten(2))


def build() -> nn.Module:
    return MultiHeadAttention(embed_dim=10, num_heads=3)
