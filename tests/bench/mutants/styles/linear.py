"""Causal linear attention: no softmax; running sums of keys and of key-value products, and their quotient."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_guard import contract


@contract(causal=True)
class LinearAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        assert dim % heads == 0
        self.heads = heads
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        q, k, v = self.to_qkv(x).view(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        q = F.elu(q) + 1
        k = F.elu(k) + 1
        kv = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(dim=2)
        numerator = torch.einsum("bhtd,bhtde->bhte", q, kv)
        normaliser = torch.einsum("bhtd,bhtd->bht", q, k.cumsum(dim=2))
        out = numerator / (normaliser[..., None] + 1e-6)
        return self.to_out(out.transpose(1, 2).reshape(B, T, D))


def build() -> nn.Module:
    torch.manual_seed(0)
    return LinearAttention(dim=20, heads=4)


def inputs(batch: int = 3, time: int = 7) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(batch, time, 20, generator=torch.Generator().manual_seed(1)),), {}
