"""A pre-norm decoder block around `nn.MultiheadAttention`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attn_guard import contract


@contract(causal=True, masks={"key_padding_mask": "ignore"}, batch_first=True)
class Block(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim)
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, dropout=dropout, batch_first=True)
        self.norm2 = nn.LayerNorm(embed_dim)
        self.mlp = nn.Sequential(nn.Linear(embed_dim, 2 * embed_dim), nn.GELU(), nn.Linear(2 * embed_dim, embed_dim))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = False) -> Any:
        time = x.size(1)
        future = torch.triu(torch.ones(time, time, dtype=torch.bool, device=x.device), diagonal=1)
        h = self.norm1(x)
        y, weights = self.attn(
            h,
            h,
            h,
            attn_mask=future,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            average_attn_weights=False,
        )
        x = x + self.dropout(y)
        x = x + self.mlp(self.norm2(x))
        return (x, weights) if need_weights else x


WEIGHTS = {"need_weights": True}


def build() -> nn.Module:
    torch.manual_seed(0)
    return Block(embed_dim=20, num_heads=4)


def inputs(batch: int = 3, time: int = 7) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(batch, time, 20, generator=torch.Generator().manual_seed(1)),), {}


def padded(keep: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, _ = inputs(*keep.shape)
    return args, {"key_padding_mask": ~keep}
