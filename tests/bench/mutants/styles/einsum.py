"""Attention in einsum, with a weight per head and no reshape at all; causal, and keys masked by a keep mask."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, einsum, nn

from attn_guard import contract


@contract(causal=True, masks={"mask": "attend"})
class EinsumAttention(nn.Module):
    def __init__(self, dim: int, heads: int, dim_head: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.scale = dim_head**-0.5
        self.w_q = nn.Parameter(torch.randn(dim, heads, dim_head) * dim**-0.5)
        self.w_k = nn.Parameter(torch.randn(dim, heads, dim_head) * dim**-0.5)
        self.w_v = nn.Parameter(torch.randn(dim, heads, dim_head) * dim**-0.5)
        self.w_o = nn.Parameter(torch.randn(heads, dim_head, dim) * (heads * dim_head) ** -0.5)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None, return_weights: bool = False) -> Any:
        time = x.shape[1]
        q = einsum("btm,mhd->bthd", x, self.w_q)
        k = einsum("btm,mhd->bthd", x, self.w_k)
        v = einsum("btm,mhd->bthd", x, self.w_v)

        q = q * self.scale
        sim = einsum("bihd,bjhd->bhij", q, k)
        lowest = torch.finfo(sim.dtype).min
        allowed = torch.ones(time, time, dtype=torch.bool, device=x.device).tril()
        if mask is not None:
            allowed = allowed & mask[:, None, None, :]
        sim = torch.where(allowed, sim, lowest)
        attn = sim.softmax(dim=-1, dtype=torch.float32).to(v.dtype)

        out = einsum("bhij,bjhd->bihd", self.dropout(attn), v)
        out = einsum("bthd,hdm->btm", out, self.w_o)
        return (out, attn) if return_weights else out


WEIGHTS = {"return_weights": True}


def build() -> nn.Module:
    torch.manual_seed(0)
    return EinsumAttention(dim=22, heads=4, dim_head=5)


def inputs(batch: int = 3, time: int = 7) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(batch, time, 22, generator=torch.Generator().manual_seed(1)),), {}


def padded(keep: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, _ = inputs(*keep.shape)
    return args, {"mask": keep}
