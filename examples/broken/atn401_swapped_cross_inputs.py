import torch
import torch.nn.functional as F
from torch import nn

import attn_guard


@attn_guard.contract(cross=True)
class CrossAttention(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads = heads
        self.to_q = nn.Linear(d_model, d_model)
        self.to_k = nn.Linear(d_model, d_model)
        self.to_v = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        q = self.split(self.to_q(memory))  # <- ATN401
        k = self.split(self.to_k(x))
        v = self.split(self.to_v(x))
        context = F.scaled_dot_product_attention(q, k, v)
        return self.out(context.transpose(1, 2).flatten(2))


def build() -> nn.Module:
    return CrossAttention(d_model=26, heads=2)
