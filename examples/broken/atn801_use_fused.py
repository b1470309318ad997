import torch
from torch import nn

import attn_guard


@attn_guard.contract(causal=True)
class CausalSelfAttention(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads, self.head_dim = heads, d_model // heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, d_model = x.shape
        query, key, value = self.qkv(x).view(batch, time, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) * self.head_dim**-0.5  # <- ATN801
        future = torch.ones(time, time, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
        context = weights @ value
        return self.out(context.transpose(1, 2).reshape(batch, time, d_model))


def build() -> nn.Module:
    return CausalSelfAttention(d_model=22, heads=2)
