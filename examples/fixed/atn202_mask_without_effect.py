import torch
from torch import nn

import attn_guard


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
    scores = torch.matmul(query, key.transpose(-2, -1)) * query.size(-1) ** -0.5
    scores = scores.masked_fill(padding[:, None, None, :], torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, dim=-1)
    return torch.matmul(weights, value)


@attn_guard.contract(masks={"key_padding_mask": "ignore"})
class EncoderAttention(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        assert d_model % heads == 0, f"d_model={d_model} does not divide by heads={heads}"
        self.heads = heads
        self.head_dim = d_model // heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x: torch.Tensor, key_padding_mask: torch.Tensor) -> torch.Tensor:
        batch, time, d_model = x.shape
        query = self.q_proj(x).view(batch, time, self.heads, self.head_dim).transpose(1, 2)
        key = self.k_proj(x).view(batch, time, self.heads, self.head_dim).transpose(1, 2)
        value = self.v_proj(x).view(batch, time, self.heads, self.head_dim).transpose(1, 2)
        context = attend(query, key, value, key_padding_mask)
        return self.out_proj(context.transpose(1, 2).contiguous().view(batch, time, d_model))


def build() -> nn.Module:
    return EncoderAttention(d_model=14, heads=2)
