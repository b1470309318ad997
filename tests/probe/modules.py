"""Attention written in several styles, all of it right, for the tests of the probe.

Every module takes features (batch, time, D) unless its docstring says otherwise. Widths and lengths are primes or
products of two of them, so that no size can be taken for another by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

D = 21
H = 3
HEAD_DIM = D // H
MaskForm = Literal["none", "bool", "float", "is_causal"]


def later(time: int) -> Tensor:
    """(time, time) bool: True where the key comes after the query."""
    return torch.ones(time, time, dtype=torch.bool).triu(1)


class FusedQkv(nn.Module):
    """One projection for query, key and value, cut in three; causal on request."""

    def __init__(self, width: int = D, heads: int = H, causal: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.triangular = heads, causal
        self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = (part.view(batch, time, self.heads, -1).transpose(1, 2) for part in self.in_proj(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if self.triangular:
            scores = scores.masked_fill(later(time), -torch.inf)
        context = self.dropout(scores.softmax(dim=-1)) @ v
        return self.out_proj(context.transpose(1, 2).reshape(batch, time, width))


class Einsum(nn.Module):
    """Three projections; heads stay behind time, and einsum does the products."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal_on_request = causal
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(D, D, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (w(x).unflatten(-1, (H, HEAD_DIM)) for w in (self.wq, self.wk, self.wv))
        scores = torch.einsum("bqhd,bkhd->bhqk", q * HEAD_DIM**-0.5, k)
        if self.causal_on_request:
            scores = torch.where(later(x.shape[1]), -torch.inf, scores)
        return self.wo(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2))


class Baddbmm(nn.Module):
    """`torch.baddbmm` adds the mask and scales in one call."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.triangular = causal
        self.qkv = nn.Linear(D, 3 * D)
        self.out = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, _ = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, H, HEAD_DIM).permute(2, 0, 3, 1, 4).flatten(1, 2).unbind(0)
        bias = torch.zeros(time, time)
        if self.triangular:
            bias = bias.masked_fill(later(time), -torch.inf)
        scores = torch.baddbmm(bias.expand(batch * H, -1, -1), q, k.mT, beta=1, alpha=HEAD_DIM**-0.5)
        context = torch.bmm(scores.softmax(dim=-1), v).view(batch, H, time, HEAD_DIM)
        return self.out(context.transpose(1, 2).flatten(2))


class Sdpa(nn.Module):
    """`F.scaled_dot_product_attention` with any form of a causal mask, and with fewer heads for keys on request."""

    def __init__(self, mask: MaskForm = "none", key_heads: int = H, width: int = D, heads: int = H) -> None:
        super().__init__()
        self.mask, self.heads, self.key_heads, self.head_dim = mask, heads, key_heads, width // heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, key_heads * self.head_dim)
        self.v_proj = nn.Linear(width, key_heads * self.head_dim)
        self.o_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        context = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=self._mask(x.shape[1]),
            is_causal=self.mask == "is_causal",
            enable_gqa=self.key_heads != self.heads,
        )
        return self.o_proj(context.transpose(1, 2).flatten(2))

    def _mask(self, time: int) -> Tensor | None:
        if self.mask == "bool":
            return ~later(time)
        return torch.zeros(time, time).masked_fill(later(time), -torch.inf) if self.mask == "float" else None


class BuiltIn(nn.Module):
    """`nn.MultiheadAttention` on one input."""

    def __init__(self, batch_first: bool = True, need_weights: bool = False, causal: bool = False) -> None:
        super().__init__()
        self.need_weights, self.triangular = need_weights, causal
        self.attention = nn.MultiheadAttention(D, H, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        time = x.shape[1] if self.attention.batch_first else x.shape[0]
        mask = later(time) if self.triangular else None
        context: Tensor = self.attention(x, x, x, attn_mask=mask, need_weights=self.need_weights)[0]
        return context


class MultiQuery(nn.Module):
    """One head of keys and values; the query heads are laid out as rows of one matrix."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.triangular = causal
        self.q = nn.Linear(D, D)
        self.kv = nn.Linear(D, 2 * HEAD_DIM)
        self.out = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, _ = x.shape
        q = self.q(x).view(batch, time, H, HEAD_DIM).transpose(1, 2).reshape(batch, H * time, HEAD_DIM)
        k, v = self.kv(x).chunk(2, dim=-1)
        scores = q @ k.mT * HEAD_DIM**-0.5
        if self.triangular:
            scores = scores.masked_fill(later(time).repeat(H, 1), -torch.inf)
        context = (scores.softmax(-1) @ v).view(batch, H, time, HEAD_DIM)
        return self.out(context.transpose(1, 2).flatten(2))


class CrossAttention(nn.Module):
    """Queries from one input, keys and values from the other, (batch, time, D) and (batch, memory, D)."""

    def __init__(self) -> None:
        super().__init__()
        self.to_q = nn.Linear(D, D)
        self.to_kv = nn.Linear(D, 2 * D)
        self.out = nn.Linear(D, D)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q = self.to_q(x).unflatten(-1, (H, -1)).transpose(1, 2)
        k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.to_kv(memory).chunk(2, -1))
        weights = (q @ k.mT * HEAD_DIM**-0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Norm, attention, residual, norm, feed-forward, residual."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.norm, self.attn, self.ff_norm = nn.LayerNorm(D), attention, nn.LayerNorm(D)
        self.ff = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm(x))
        return x + self.ff(self.ff_norm(x))


class Decoder(nn.Module):
    """Token ids (batch, time) → logits: embedding, causal blocks, head."""

    def __init__(self, layers: int = 2, vocabulary: int = 29) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, D)
        self.blocks = nn.ModuleList(Block(FusedQkv(causal=True)) for _ in range(layers))
        self.head = nn.Linear(D, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        x: Tensor = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits


class TalkingHeads(nn.Module):
    """The scores and the weights of all heads are mixed by learned matrices (Shazeer et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.before, self.after = nn.Linear(H, H, bias=False), nn.Linear(H, H, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT * HEAD_DIM**-0.5
        scores = self.before(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        weights = self.after(scores.softmax(-1).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Additive(nn.Module):
    """Scores from a small network, no product of query and key (Bahdanau et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.energy = nn.Linear(D, 11), nn.Linear(D, 11), nn.Linear(11, 1)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.energy(torch.tanh(self.q(x)[:, :, None] + self.k(x)[:, None])).squeeze(-1)
        return scores.softmax(-1) @ x


class LinearAttention(nn.Module):
    """Keys and values are summed up first; softmax only over the features (Shen et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        summary = k.softmax(dim=-2).mT @ v
        return self.out((q.softmax(dim=-1) @ summary).transpose(1, 2).flatten(2))


class Classifier(nn.Module):
    """A softmax, but no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(D, D), nn.Linear(D, 5)

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(self.head(torch.relu(self.body(x))), dim=-1)


class Router(nn.Module):
    """A mixture of experts: the softmax of the gate weighs the experts' outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(D, 5)
        self.experts = nn.ModuleList(nn.Linear(D, D) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        outputs = torch.stack([expert(x) for expert in self.experts], dim=-2)
        return (self.gate(x).softmax(-1)[:, :, None] @ outputs).squeeze(-2)


# Name → how to build it: self-attention over features, one site, scaled by 1/√head_dim, no mask.
STYLES: dict[str, Callable[[], nn.Module]] = {
    "fused qkv": FusedQkv,
    "einsum": Einsum,
    "baddbmm": Baddbmm,
    "sdpa": Sdpa,
    "sdpa, one head of keys": lambda: Sdpa(key_heads=1),
    "built-in": BuiltIn,
    "built-in, weights": lambda: BuiltIn(need_weights=True),
    "multi-query": MultiQuery,
}

# The same with a causal mask.
CAUSAL_STYLES: dict[str, Callable[[], nn.Module]] = {
    "fused qkv": lambda: FusedQkv(causal=True),
    "einsum": lambda: Einsum(causal=True),
    "baddbmm": lambda: Baddbmm(causal=True),
    "sdpa bool": lambda: Sdpa("bool"),
    "sdpa float": lambda: Sdpa("float"),
    "sdpa is_causal": lambda: Sdpa("is_causal"),
    "sdpa is_causal, one head of keys": lambda: Sdpa("is_causal", key_heads=1),
    "built-in": lambda: BuiltIn(causal=True),
    "built-in, weights": lambda: BuiltIn(need_weights=True, causal=True),
    "multi-query": lambda: MultiQuery(causal=True),
}


def features(batch: int = 2, time: int = 5, width: int = D, seed: int = 0) -> Tensor:
    """(batch, time, width), the same for the same seed; the global random stream stays as it is."""
    return torch.randn(batch, time, width, generator=torch.Generator().manual_seed(seed))


def seeded(build: Callable[..., nn.Module], *args: Any, **kwargs: Any) -> nn.Module:
    """A module with the same parameters each time, in eval mode; the global random stream stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build(*args, **kwargs).eval()
