"""Cross-attention as in text-conditioned image models: one projection for keys and values of the context."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attn_guard import contract


@contract(cross=True, masks={"context_mask": "attend"})
class CrossAttention(nn.Module):
    def __init__(self, dim: int, context_dim: int, heads: int, dim_head: int, dropout: float = 0.1) -> None:
        super().__init__()
        inner_dim = heads * dim_head
        self.heads = heads
        self.scale = dim_head**-0.5
        self.norm = nn.LayerNorm(dim)
        self.to_q = nn.Linear(dim, inner_dim, bias=False)
        self.to_kv = nn.Linear(context_dim, inner_dim * 2, bias=False)
        self.to_out = nn.Linear(inner_dim, dim)
        self.dropout = nn.Dropout(dropout)

    def into_heads(self, t: Tensor) -> Tensor:
        return t.view(*t.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(
        self, x: Tensor, context: Tensor, context_mask: Tensor | None = None, return_weights: bool = False
    ) -> Any:
        residual = x
        q = self.to_q(self.norm(x))
        k, v = self.to_kv(context).chunk(2, dim=-1)
        q, k, v = self.into_heads(q), self.into_heads(k), self.into_heads(v)

        q = q * self.scale
        sim = torch.einsum("bhid,bhjd->bhij", q, k)
        if context_mask is not None:
            sim = sim.masked_fill(~context_mask[:, None, None, :], -torch.finfo(sim.dtype).max)
        attn = sim.softmax(dim=-1)
        out = torch.einsum("bhij,bhjd->bhid", self.dropout(attn), v)

        out = out.transpose(1, 2).flatten(2)
        out = residual + self.to_out(out)
        return (out, attn) if return_weights else out


WEIGHTS = {"return_weights": True}


def build() -> nn.Module:
    torch.manual_seed(0)
    return CrossAttention(dim=22, context_dim=22, heads=4, dim_head=5)


def inputs(batch: int = 3, time: int = 7, memory: int = 11) -> tuple[tuple[Any, ...], dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch, time, 22, generator=generator)
    return (x, torch.randn(batch, memory, 22, generator=generator)), {}


def padded(keep: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, _ = inputs(keep.shape[0], memory=keep.shape[1])
    return args, {"context_mask": keep}


PADS = "context"
