import torch
from torch import nn

import attn_guard


@attn_guard.contract(masks={"keep": "attend"})
class EncoderAttention(nn.Module):
    """True in keep (batch, time) marks real tokens."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide by heads={heads}")
        self.heads, self.head_dim = heads, d_model // heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        batch, time, d_model = x.shape
        q, k, v = (w(x).view(batch, time, self.heads, -1).transpose(1, 2) for w in (self.w_q, self.w_k, self.w_v))
        scores = q @ k.transpose(-2, -1) * self.head_dim**-0.5
        scores = scores.masked_fill(~keep[:, None, None, :], torch.finfo(scores.dtype).min)
        context = scores.softmax(dim=-1) @ v
        return self.w_o(context.transpose(1, 2).reshape(batch, time, d_model))


def build() -> nn.Module:
    return EncoderAttention(d_model=14, heads=2)
