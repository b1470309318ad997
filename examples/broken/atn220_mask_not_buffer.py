import torch
from torch import nn

import attn_guard


@attn_guard.contract(causal=True)
class CausalSelfAttention(nn.Module):
    future: torch.Tensor

    def __init__(self, d_model: int, heads: int, longest: int) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads, self.head_dim = heads, d_model // heads
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.future = torch.full((longest, longest), float("-inf")).triu(1)  # <- ATN220

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, d_model = x.shape
        q, k, v = self.in_proj(x).view(batch, time, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * self.head_dim**-0.5 + self.future[:time, :time]
        context = scores.softmax(dim=-1) @ v
        return self.out_proj(context.transpose(1, 2).reshape(batch, time, d_model))


def build() -> nn.Module:
    return CausalSelfAttention(d_model=14, heads=2, longest=32)
