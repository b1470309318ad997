"""Decoder self-attention as small GPTs have it: one projection for all three, and a triangle kept as a buffer."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_guard import contract


@contract(causal=True, masks={"key_padding_mask": "ignore"})
class CausalSelfAttention(nn.Module):
    def __init__(self, d_model: int, heads: int, dropout: float = 0.1, max_time: int = 32) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(f"d_model {d_model} does not divide by {heads} heads")
        self.heads = heads
        self.head_dim = d_model // heads
        self.c_attn = nn.Linear(d_model, 3 * d_model)
        self.c_proj = nn.Linear(d_model, d_model)
        self.attn_dropout = nn.Dropout(dropout)
        self.resid_dropout = nn.Dropout(dropout)
        self.triangle: Tensor
        self.register_buffer("triangle", torch.tril(torch.ones(max_time, max_time)), persistent=False)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = False) -> Any:
        batch, time, width = x.shape
        q, k, v = self.c_attn(x).split(width, dim=2)
        q = q.view(batch, time, self.heads, self.head_dim).transpose(1, 2)
        k = k.view(batch, time, self.heads, self.head_dim).transpose(1, 2)
        v = v.view(batch, time, self.heads, self.head_dim).transpose(1, 2)

        scores = q @ k.transpose(-2, -1)
        scores = scores / math.sqrt(self.head_dim)
        scores = scores.masked_fill(self.triangle[:time, :time] == 0, float("-inf"))
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None, :], torch.finfo(scores.dtype).min)
        weights = F.softmax(scores, dim=-1)
        y = self.attn_dropout(weights) @ v

        y = y.transpose(1, 2).contiguous().view(batch, time, width)
        y = self.resid_dropout(self.c_proj(y))
        return (y, weights) if need_weights else y


WEIGHTS = {"need_weights": True}


def build() -> nn.Module:
    torch.manual_seed(0)
    return CausalSelfAttention(d_model=20, heads=4)


def inputs(batch: int = 3, time: int = 7) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(batch, time, 20, generator=torch.Generator().manual_seed(1)),), {}


def padded(keep: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, _ = inputs(*keep.shape)
    return args, {"key_padding_mask": ~keep}
