import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int) -> None:
        super().__init__()
        if hidden_size % num_heads != 0:
            raise ValueError(f"hidden_size={hidden_size} does not divide by num_heads={num_heads}")
        self.num_heads = num_heads
        self.head_size = hidden_size // num_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def _split_heads(self, tensor: torch.Tensor) -> torch.Tensor:
        batch, time, _ = tensor.shape
        return tensor.view(batch, self.num_heads, time, self.head_size)  # <- ATN303

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query = self._split_heads(self.query(x))
        key = self._split_heads(self.key(x))
        value = self._split_heads(self.value(x))

        scores = torch.matmul(query, key.transpose(-1, -2)) / self.head_size**0.5
        weights = nn.functional.softmax(scores, dim=-1)
        context = torch.matmul(weights, value).transpose(1, 2)
        return self.dense(context.reshape(x.shape))


def build() -> nn.Module:
    return SelfAttention(hidden_size=14, num_heads=2)
