"""Decoder self-attention over `F.scaled_dot_product_attention`; a padding mask is joined with the causal one."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_guard import contract


@contract(causal=True, masks={"mask": "attend"}, batch_first=True)
class Attention(nn.Module):
    def __init__(self, dim: int, num_heads: int, attn_drop: float = 0.1) -> None:
        super().__init__()
        assert dim % num_heads == 0, "dim must divide by num_heads"
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.attn_drop = attn_drop
        self.qkv = nn.Linear(dim, dim * 3, bias=False)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        dropout_p = self.attn_drop if self.training else 0.0

        if mask is None:
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, is_causal=True)
        else:
            keep = torch.ones(N, N, dtype=torch.bool, device=x.device).tril()
            keep = keep & mask[:, None, None, :]
            x = F.scaled_dot_product_attention(q, k, v, attn_mask=keep, dropout_p=dropout_p)

        x = x.transpose(1, 2).reshape(B, N, C)
        return self.proj(x)


def build() -> nn.Module:
    torch.manual_seed(0)
    return Attention(dim=20, num_heads=4)


def inputs(batch: int = 3, time: int = 7) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(batch, time, 20, generator=torch.Generator().manual_seed(1)),), {}


def padded(keep: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, _ = inputs(*keep.shape)
    return args, {"mask": keep}
