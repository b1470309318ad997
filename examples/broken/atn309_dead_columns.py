import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} does not divide by n_heads={n_heads}")
        self.n_heads = n_heads
        self.head_dim = d_model // n_heads
        self.w_q = nn.Linear(d_model, d_model)
        self.w_k = nn.Linear(d_model, d_model)
        self.w_v = nn.Linear(d_model, d_model)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.w_q(x), self.w_k(x), self.w_v(x)
        heads = []
        for head in range(self.n_heads):
            part = slice(head * self.head_dim, (head + 1) * self.head_dim)
            scores = query[..., part] @ key[..., part].mT * self.head_dim**-0.5
            heads.append(scores.softmax(dim=-1) @ value[..., : self.head_dim])  # <- ATN309
        return self.w_o(torch.cat(heads, dim=-1))


def build() -> nn.Module:
    return MultiHeadAttention(d_model=39, n_heads=3)
