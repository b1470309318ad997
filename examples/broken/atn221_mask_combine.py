import torch
from torch import nn

import attn_guard


@attn_guard.contract(causal=True, masks={"key_padding_mask": "ignore"})
class DecoderAttention(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads, self.head_dim = heads, d_model // heads
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor, key_padding_mask: torch.Tensor) -> torch.Tensor:
        batch, time, d_model = x.shape
        q, k, v = self.in_proj(x).view(batch, time, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * self.head_dim**-0.5
        future = torch.ones(time, time, dtype=torch.bool, device=x.device).triu(1)
        hidden = future & key_padding_mask[:, None, None, :]  # <- ATN221
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        context = scores.softmax(dim=-1) @ v
        return self.out_proj(context.transpose(1, 2).reshape(batch, time, d_model))


def build() -> nn.Module:
    return DecoderAttention(d_model=14, heads=2)
