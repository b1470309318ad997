"""Attention from scratch, the clear version: the oracle that everything else is compared with.

Vaswani et al. 2017, "Attention Is All You Need", sections 3.2.1 and 3.2.2.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """softmax(query · keyᵀ / √d_k) · value, and the weights.

    Shapes: query (..., Tq, d_k), key (..., Tk, d_k), value (..., Tk, d_v) → context (..., Tq, d_v), weights (...,
    Tq, Tk).
    ``mask`` broadcasts to (..., Tq, Tk); where it is 0 or False the key is blocked. A query that may see no key gets
    NaN.
    """
    d_k = query.shape[-1]
    scores = query @ key.transpose(-2, -1) / d_k**0.5
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


class MultiHeadAttention(nn.Module):
    """Multi-head self-attention with one fused projection for query, key and value.

    x (batch, time, d_model) → output (batch, time, d_model) and weights (batch, heads, time, time): one map per head.
    Raises ValueError where ``d_model`` does not divide by ``heads``.
    """

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        if d_model % heads:
            raise ValueError(
                f"d_model={d_model} does not divide by heads={heads}; head_dim would not be a whole number"
            )
        self.heads = heads
        self.d_k = d_model // heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        batch, time, d_model = x.shape
        query, key, value = (self._split(part) for part in self.qkv(x).chunk(3, dim=-1))
        context, weights = scaled_dot_product_attention(query, key, value, mask)
        merged = context.transpose(1, 2).reshape(batch, time, d_model)
        return self.out(merged), weights

    def _split(self, features: Tensor) -> Tensor:
        """(batch, time, d_model) → (batch, heads, time, d_k)."""
        batch, time, _ = features.shape
        return features.view(batch, time, self.heads, self.d_k).transpose(1, 2)


def causal_mask(time: int, *, device: torch.device | str | None = None) -> Tensor:
    """(time, time) lower triangle of ones: position t may attend to positions 0 … t."""
    return torch.tril(torch.ones(time, time, dtype=torch.bool, device=device))


def padding_mask(lengths: Tensor, time: int | None = None) -> Tensor:
    """(batch,) lengths → (batch, 1, 1, time): True at the keys that are real tokens, False at padding.

    Broadcasts over heads and queries. ``time`` defaults to the longest length.
    """
    time = int(lengths.max()) if time is None else time
    keep = torch.arange(time, device=lengths.device) < lengths[:, None]
    return keep[:, None, None, :]
