"""Local causal attention over packed rows: a token sees the last few tokens of its own document."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_guard import contract


@contract(causal=True, window=3, segments="segment_ids")
class LocalAttention(nn.Module):
    def __init__(self, d_model: int, heads: int, window: int) -> None:
        super().__init__()
        assert d_model % heads == 0
        self.heads, self.window = heads, window
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def hidden(self, time: int, segment_ids: Tensor | None) -> Tensor:
        """(time, time) or (B, 1, time, time), True where a key must not be seen."""
        distance = torch.arange(time)[:, None] - torch.arange(time)[None, :]
        future = distance < 0
        too_old = distance >= self.window
        hide = future | too_old
        if segment_ids is not None:
            other = segment_ids[:, :, None] != segment_ids[:, None, :]
            hide = hide | other[:, None]
        return hide

    def forward(self, x: Tensor, segment_ids: Tensor | None = None) -> Tensor:
        B, T, _ = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, -1).unbind(2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        hide = self.hidden(T, segment_ids).to(x.device)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=~hide)
        out = out.transpose(1, 2).flatten(2)
        return self.out(out)


def build() -> nn.Module:
    torch.manual_seed(0)
    return LocalAttention(d_model=20, heads=4, window=3)


def inputs(batch: int = 3, time: int = 11) -> tuple[tuple[Any, ...], dict[str, Any]]:
    x = torch.randn(batch, time, 20, generator=torch.Generator().manual_seed(1))
    segment_ids = (torch.arange(time)[None] >= torch.arange(4, 4 + batch)[:, None]).long()
    return (x,), {"segment_ids": segment_ids}
