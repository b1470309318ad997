"""Causal attention that knows distances by ALiBi: a slope per head times the distance, added to the scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attn_guard import contract


def slopes(heads: int) -> Tensor:
    return 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)


def alibi(time: int, heads: int) -> Tensor:
    """(heads, time, time): 0 for the token itself, falling with the distance to the past."""
    i = torch.arange(time)[:, None]
    j = torch.arange(time)[None, :]
    distance = j - i
    return slopes(heads)[:, None, None] * distance


@contract(causal=True, positions=True, masks={"key_padding_mask": "ignore"})
class AlibiAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        assert dim % heads == 0
        self.heads = heads
        self.dim_head = dim // heads
        self.qkv = nn.Linear(dim, dim * 3, bias=False)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        B, T, D = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.reshape(B, T, self.heads, self.dim_head).transpose(1, 2)
        k = k.reshape(B, T, self.heads, self.dim_head).transpose(1, 2)
        v = v.reshape(B, T, self.heads, self.dim_head).transpose(1, 2)

        logits = torch.einsum("bhqd,bhkd->bhqk", q, k)
        logits = logits * self.dim_head**-0.5
        logits = logits + alibi(T, self.heads).to(x)
        hide = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        if key_padding_mask is not None:
            hide = hide | key_padding_mask[:, None, None, :]
        logits = logits.masked_fill(hide, torch.finfo(logits.dtype).min)
        weights = torch.softmax(logits, dim=-1)
        y = torch.einsum("bhqk,bhkd->bqhd", weights, v)
        return self.out(y.reshape(B, T, D))


def build() -> nn.Module:
    torch.manual_seed(0)
    return AlibiAttention(dim=20, heads=4)


def inputs(batch: int = 3, time: int = 7) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(batch, time, 20, generator=torch.Generator().manual_seed(1)),), {}


def padded(keep: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, _ = inputs(*keep.shape)
    return args, {"key_padding_mask": ~keep}
