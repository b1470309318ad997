import torch
from torch import nn


class MultiHeadedAttention(nn.Module):
    def __init__(self, d_model: int, h: int) -> None:
        super().__init__()
        if d_model % h:
            raise ValueError(f"d_model={d_model} does not divide by h={h}")
        self.h = h
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], self.h, -1).transpose(1, 2)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        q = self.split(self.w_q(query))
        k = self.split(self.w_k(key))
        v = self.split(self.w_v(value))

        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        context = scores.softmax(dim=-1) @ v
        return self.w_o(context.transpose(1, 2).flatten(2))


def build() -> nn.Module:
    return MultiHeadedAttention(d_model=26, h=2)
