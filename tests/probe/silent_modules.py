"""Unusual attention that is right: what the probe must not report. One class per design, each written afresh.

All take features (batch, time, D) and, where the class says so, a mask argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from tests.probe.modules import HEAD_DIM, D, H, later


class Parts(nn.Module):
    """The parts of causal self-attention, which the designs below replace."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(batch, H, time, HEAD_DIM) each."""
        q, k, v = (part(x).unflatten(-1, (H, HEAD_DIM)).transpose(1, 2) for part in (self.q, self.k, self.v))
        return q, k, v

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT * HEAD_DIM**-0.5

    def hide(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(later(scores.shape[-1]), -torch.inf)

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=-1)

    def merge(self, context: Tensor) -> Tensor:
        merged: Tensor = self.out(context.transpose(1, 2).flatten(2))
        return merged


class Core(Parts):
    """The parts put together: causal self-attention."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return self.merge(self.weigh(self.hide(self.scores(q, k))) @ v)


class QuarterRoot(Core):
    """head_dim^-1/4 on the query and on the key: the product is 1/√head_dim, and each half stays small in float16."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return (q * HEAD_DIM**-0.25) @ (k * HEAD_DIM**-0.25).mT


class FoldedScale(Core):
    """T5: no scale, a query projection drawn smaller by √head_dim, and a learned relative bias."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.normal_(self.q.weight, std=(D * HEAD_DIM) ** -0.5)
        nn.init.normal_(self.k.weight, std=D**-0.5)
        self.relative = nn.Embedding(32, H)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        time = q.shape[-2]
        distance = (torch.arange(time)[:, None] - torch.arange(time)).clamp(0, 31)
        return q @ k.mT + self.relative(distance).permute(2, 0, 1)


class QkNorm(Core):
    """RMS norm with a learned gain on query and key (Dehghani et al. 2023), without a scale."""

    def __init__(self) -> None:
        super().__init__()
        self.q_norm, self.k_norm = nn.RMSNorm(HEAD_DIM), nn.RMSNorm(HEAD_DIM)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return self.q_norm(q) @ self.k_norm(k).mT


class QkLayerNorm(QkNorm):
    """Layer norm on query and key, and the usual scale."""

    def __init__(self) -> None:
        super().__init__()
        self.q_norm, self.k_norm = nn.LayerNorm(HEAD_DIM), nn.LayerNorm(HEAD_DIM)  # type: ignore[assignment]

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return super().scores(q, k) * HEAD_DIM**-0.5


class HandWrittenNorm(Core):
    """x / sqrt(mean(x²)) spelled out, as large models write it."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return self.norm(q) @ self.norm(k).mT * HEAD_DIM**-0.5

    @staticmethod
    def norm(x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Cosine(Core):
    """Cosine similarity times a learned temperature per head, capped at 100 (Swin v2)."""

    def __init__(self) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.full((H, 1, 1), math.log(10.0)))

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        cosine = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
        return cosine * self.logit_scale.clamp(max=math.log(100.0)).exp()


class FixedCosine(Core):
    """Cosine similarity times the number 10."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return 10 * F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT


class Temperature(Core):
    """A learned temperature without a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT / self.temperature


class StatedScalar(Core):
    """Gemma: the scale is a number of the configuration, kept in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.scaling = 13.0**-0.5

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT * self.scaling


class SoftCap(Core):
    """Scores are squeezed into ±30 by tanh."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return 30.0 * torch.tanh(super().scores(q, k) / 30.0)


class Alibi(Core):
    """A penalty that grows with the distance, steeper from head to head (Press et al. 2022)."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        steps = torch.arange(q.shape[-2])
        slopes = 2.0 ** -torch.arange(1, H + 1)[:, None, None]
        return super().scores(q, k) + slopes * (steps[None, :] - steps[:, None])


class RelativeTable(Core):
    """A learned bias per head and distance."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(63, H))

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        steps = torch.arange(q.shape[-2])
        bias = self.table[steps[:, None] - steps[None, :] + 31].permute(2, 0, 1)
        return super().scores(q, k) + bias


class RelativeKeys(Core):
    """Shaw et al. 2018: the query also meets an embedding of the distance."""

    def __init__(self) -> None:
        super().__init__()
        self.distance = nn.Embedding(63, HEAD_DIM)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        steps = torch.arange(q.shape[-2])
        embedded = self.distance(steps[:, None] - steps[None, :] + 31)
        return (q @ k.mT + torch.einsum("bhid,ijd->bhij", q, embedded)) / HEAD_DIM**0.5


class SinkColumn(Core):
    """A learned score that takes the weight nobody wants, cut off after the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.sinks = nn.Parameter(torch.randn(H))

    def weigh(self, scores: Tensor) -> Tensor:
        sink = self.sinks.view(1, H, 1, 1).expand(*scores.shape[:-1], 1)
        return torch.cat((scores, sink), dim=-1).softmax(dim=-1)[..., :-1]


class SinkZero(Core):
    """The same with a score of 0."""

    def weigh(self, scores: Tensor) -> Tensor:
        return F.pad(scores, (1, 0)).softmax(dim=-1)[..., 1:]


class OffByOne(Core):
    """softmax with 1 added to the denominator, written out."""

    def weigh(self, scores: Tensor) -> Tensor:
        highest = scores.amax(dim=-1, keepdim=True).clamp_min(0)
        raised = (scores - highest).exp()
        return raised / (raised.sum(-1, keepdim=True) + (-highest).exp())


class SinkToken(Core):
    """A learned key and value that every query may see, before the first position."""

    def __init__(self) -> None:
        super().__init__()
        self.sink_key, self.sink_value = (nn.Parameter(torch.randn(1, H, 1, HEAD_DIM)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        batch, time = x.shape[:2]
        k = torch.cat((self.sink_key.expand(batch, -1, -1, -1), k), dim=2)
        v = torch.cat((self.sink_value.expand(batch, -1, -1, -1), v), dim=2)
        scores = self.scores(q, k).masked_fill(F.pad(later(time), (1, 0), value=False), -torch.inf)
        return self.merge(scores.softmax(-1) @ v)


class ZeroedTwice(Core):
    """-inf before the softmax, and zeros once more after it."""

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=-1).masked_fill(later(scores.shape[-1]), 0.0)


class FiniteFill(Core):
    """finfo.min in place of -inf."""

    def hide(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(later(scores.shape[-1]), torch.finfo(scores.dtype).min)


class AddedMinusBillion(Core):
    """(1 - keep) * -1e9, added."""

    def hide(self, scores: Tensor) -> Tensor:
        keep = (~later(scores.shape[-1])).float()
        return scores + (1.0 - keep) * -1e9


class MultipliedThenAdded(Core):
    """scores * keep - 1e9 * (1 - keep)."""

    def hide(self, scores: Tensor) -> Tensor:
        keep = (~later(scores.shape[-1])).float()
        return scores * keep - 1e9 * (1.0 - keep)


class InPlaceMask(Core):
    """masked_fill_ on the scores."""

    def hide(self, scores: Tensor) -> Tensor:
        scores.masked_fill_(later(scores.shape[-1]), -torch.inf)
        return scores


class IndexedMask(Core):
    """Scores assigned to by index."""

    def hide(self, scores: Tensor) -> Tensor:
        scores[:, :, later(scores.shape[-1])] = -torch.inf
        return scores


class TopK(Core):
    """All but the three largest weights are dropped after the softmax, and the rest sum to one again."""

    def weigh(self, scores: Tensor) -> Tensor:
        weights = scores.softmax(dim=-1)
        least = weights.topk(min(3, weights.shape[-1]), dim=-1).values[..., -1:]
        weights = weights.masked_fill(weights < least, 0.0)
        return weights / weights.sum(dim=-1, keepdim=True)


class TopKScores(Core):
    """All but the three largest scores are hidden before the softmax."""

    def weigh(self, scores: Tensor) -> Tensor:
        least = scores.topk(min(3, scores.shape[-1]), dim=-1).values[..., -1:]
        return scores.masked_fill(scores < least, -torch.inf).softmax(dim=-1)


class Dropped(Core):
    """`nn.Dropout` on the weights; off in eval."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def weigh(self, scores: Tensor) -> Tensor:
        weights: Tensor = self.dropout(super().weigh(scores))
        return weights


class FunctionalDropout(Core):
    """`F.dropout` that asks for the mode."""

    def weigh(self, scores: Tensor) -> Tensor:
        return F.dropout(super().weigh(scores), 0.5, training=self.training)


class StableSoftmax(Core):
    """The maximum is taken off by hand, and the softmax runs in float64."""

    def weigh(self, scores: Tensor) -> Tensor:
        steady = scores - scores.amax(dim=-1, keepdim=True)
        return steady.softmax(dim=-1, dtype=torch.float64).to(scores.dtype)


class Gated(Core):
    """The context passes a gate computed from the input."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        context = (self.weigh(self.hide(self.scores(q, k))) @ v).transpose(1, 2).flatten(2)
        return self.out(context * torch.sigmoid(self.gate(x)))


class SharedQk(Core):
    """Reformer: one projection for query and key."""

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, v = (part(x).unflatten(-1, (H, HEAD_DIM)).transpose(1, 2) for part in (self.q, self.v))
        return q, F.normalize(q, dim=-1), v


class SharedKv(Core):
    """Key and value are the same numbers, and there is no projection for a value."""

    def __init__(self) -> None:
        super().__init__()
        del self.v

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k = (part(x).unflatten(-1, (H, HEAD_DIM)).transpose(1, 2) for part in (self.q, self.k))
        return q, k, k


class HeadsFirstInBatch(Core):
    """Heads and batch are one axis, heads outermost: split and concatenated, as in the first public transformers."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (torch.cat(torch.split(part(x), HEAD_DIM, dim=-1), dim=0) for part in (self.q, self.k, self.v))
        context = self.weigh(self.hide(self.scores(q, k))) @ v
        merged: Tensor = self.out(torch.cat(context.chunk(H, dim=0), dim=-1))
        return merged


class LoopOverHeads(Core):
    """One head after the other, concatenated at the end."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x) for part in (self.q, self.k, self.v))
        found = []
        for head in range(H):
            own = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
            scores = self.hide(self.scores(q[..., own], k[..., own]))
            found.append(scores.softmax(-1) @ v[..., own])
        merged: Tensor = self.out(torch.cat(found, dim=-1))
        return merged


class Rotary(Core):
    """Rotary positions, by halves."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return super().scores(self.turn(q), self.turn(k))

    @staticmethod
    def turn(x: Tensor) -> Tensor:
        half = HEAD_DIM // 2
        angles = torch.arange(x.shape[-2])[:, None] * 10000 ** (-torch.arange(half) / half)
        first, second, rest = torch.split(x, [half, half, HEAD_DIM - 2 * half], dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


class RotaryPairs(Core):
    """Rotary positions as complex numbers, by pairs; heads of even width."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return super().scores(self.turn(q), self.turn(k))

    @staticmethod
    def turn(x: Tensor) -> Tensor:
        even = torch.unflatten(x[..., : HEAD_DIM - 1], -1, (-1, 2)).contiguous()
        pairs = torch.view_as_complex(even)
        angles = torch.arange(x.shape[-2])[:, None] * 10000 ** (-torch.arange(HEAD_DIM // 2) / HEAD_DIM)
        turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
        return torch.cat((turned, x[..., HEAD_DIM - 1 :]), dim=-1)


class KeyConvolution(Core):
    """Keys and values pass a causal depthwise convolution over time."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv1d(D, D, 3, groups=D)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mixed = self.mix(F.pad(x.mT, (2, 0))).mT
        q, k, v = (
            part(source).unflatten(-1, (H, HEAD_DIM)).transpose(1, 2)
            for part, source in ((self.q, x), (self.k, mixed), (self.v, mixed))
        )
        return q, k, v


class SlidingWindow(Core):
    """Each query sees itself and the two positions before."""

    def hide(self, scores: Tensor) -> Tensor:
        time = scores.shape[-1]
        distance = torch.arange(time)[:, None] - torch.arange(time)
        return scores.masked_fill((distance < 0) | (distance > 2), -torch.inf)


class Differential(Core):
    """Two maps, one taken off the other by a learned share (Ye et al. 2024)."""

    def __init__(self) -> None:
        super().__init__()
        self.q2, self.k2 = nn.Linear(D, D), nn.Linear(D, D)
        self.share = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        q2, k2 = (part(x).unflatten(-1, (H, HEAD_DIM)).transpose(1, 2) for part in (self.q2, self.k2))
        first, second = (self.weigh(self.hide(self.scores(*pair))) for pair in ((q, k), (q2, k2)))
        return self.merge((first - self.share * second) @ v)


class Cached(Core):
    """Keeps the keys and values that it has seen in attributes and concatenates."""

    def __init__(self) -> None:
        super().__init__()
        self.past: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        if self.past is not None:
            k, v = torch.cat((self.past[0], k), dim=2), torch.cat((self.past[1], v), dim=2)
        self.past = (k, v)
        return self.merge(self.weigh(self.hide(self.scores(q, k))) @ v)


class PreallocatedCache(Core):
    """Writes keys and values into buffers and reads back what is filled."""

    keys: Tensor
    values: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(5, H, 31, HEAD_DIM), persistent=False)
        self.register_buffer("values", torch.zeros(5, H, 31, HEAD_DIM), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        batch, time = x.shape[:2]
        self.keys[:batch, :, :time] = k
        self.values[:batch, :, :time] = v
        scores = self.hide(self.scores(q, self.keys[:batch, :, :time]))
        return self.merge(self.weigh(scores) @ self.values[:batch, :, :time])


# Designs that keep the causal promise; checked with causal=True.
CAUSAL: list[Callable[[], nn.Module]] = [
    Core,
    QuarterRoot,
    FoldedScale,
    QkNorm,
    QkLayerNorm,
    HandWrittenNorm,
    Cosine,
    FixedCosine,
    Temperature,
    StatedScalar,
    SoftCap,
    Alibi,
    RelativeTable,
    RelativeKeys,
    SinkColumn,
    SinkZero,
    OffByOne,
    SinkToken,
    ZeroedTwice,
    FiniteFill,
    AddedMinusBillion,
    MultipliedThenAdded,
    InPlaceMask,
    IndexedMask,
    TopKScores,
    Dropped,
    FunctionalDropout,
    StableSoftmax,
    Gated,
    SharedQk,
    SharedKv,
    HeadsFirstInBatch,
    LoopOverHeads,
    Rotary,
    RotaryPairs,
    KeyConvolution,
    SlidingWindow,
    Differential,
    Cached,
    PreallocatedCache,
]


class Encoder(Core):
    """No mask at all."""

    def hide(self, scores: Tensor) -> Tensor:
        return scores


class EncoderTopK(TopK):
    """Post-softmax top-k without a mask."""

    def hide(self, scores: Tensor) -> Tensor:
        return scores


class Pooling(nn.Module):
    """One learned query pools the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(1, H, 1, HEAD_DIM))
        self.kv, self.out = nn.Linear(D, 2 * D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.kv(x).chunk(2, -1))
        weights = (self.query @ k.mT * HEAD_DIM**-0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2)).squeeze(1)


class Perceiver(nn.Module):
    """Learned latents are the queries; they read the input and then each other."""

    def __init__(self) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(11, D))
        self.read, self.think = (nn.MultiheadAttention(D, H, batch_first=True) for _ in range(2))
        self.head = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        latents = self.latents.expand(x.shape[0], -1, -1)
        latents = latents + self.read(latents, x, x, need_weights=False)[0]
        latents = latents + self.think(latents, latents, latents, need_weights=False)[0]
        return self.head(latents)


class PerceiverConcat(nn.Module):
    """Latents attend to the input and to themselves in one go (Flamingo's resampler)."""

    def __init__(self) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(11, D))
        self.to_q, self.to_kv, self.out = nn.Linear(D, D), nn.Linear(D, 2 * D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        latents = self.latents.expand(x.shape[0], -1, -1)
        q = self.to_q(latents).unflatten(-1, (H, -1)).transpose(1, 2) * HEAD_DIM**-0.5
        k, v = (
            part.unflatten(-1, (H, -1)).transpose(1, 2)
            for part in self.to_kv(torch.cat((x, latents), dim=1)).chunk(2, -1)
        )
        return self.out(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


class ClassToken(nn.Module):
    """A vision transformer's layer: a learned token in front, a learned position table, no mask."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, D)), nn.Parameter(torch.randn(1, 32, D))
        self.attention = Encoder()

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1)
        return self.attention(x + self.positions[:, : x.shape[1]])


class ReducedKeys(nn.Module):
    """Keys and values are a strided convolution of the sequence (PVT): fewer keys than queries."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(D, D), nn.Linear(D, 2 * D), nn.Linear(D, D)
        self.reduce = nn.Conv1d(D, D, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x).unflatten(-1, (H, -1)).transpose(1, 2)
        k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.kv(self.reduce(x.mT).mT).chunk(2, dim=-1))
        weights = (q @ k.mT * HEAD_DIM**-0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class HeadsBesideTime(nn.Module):
    """One head of keys and values, met by all heads of one position at a time: scores (batch, time, H, keys)."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(D, D), nn.Linear(D, 2 * HEAD_DIM), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x).unflatten(-1, (H, HEAD_DIM))
        k, v = self.kv(x).unsqueeze(1).chunk(2, dim=-1)
        weights = (q @ k.mT * HEAD_DIM**-0.5).softmax(-1)
        return self.out((weights @ v).flatten(2))


class Linformer(nn.Module):
    """Keys and values are projected along time to a fixed number of rows; takes (batch, 7, D)."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))
        self.along_time = nn.Parameter(torch.randn(5, 7))

    def forward(self, x: Tensor) -> Tensor:
        k, v = (self.along_time @ part(x) for part in (self.k, self.v))
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in (self.q(x), k, v))
        return self.out(((q @ k.mT * HEAD_DIM**-0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))


class TimeFirst(nn.Module):
    """(time, batch, D), heads folded into the batch axis as fairseq does."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        time, batch, _ = x.shape
        q, k, v = (part(x).view(time, batch * H, HEAD_DIM).transpose(0, 1) for part in (self.q, self.k, self.v))
        weights = torch.bmm(q * HEAD_DIM**-0.5, k.transpose(1, 2)).softmax(-1)
        return self.out(torch.bmm(weights, v).transpose(0, 1).reshape(time, batch, D))


class Grouped(nn.Module):
    """Two query heads to each head of keys, spread by `repeat_interleave`; width 28, seven wide heads."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = nn.Linear(28, 28), nn.Linear(28, 14), nn.Linear(28, 14), nn.Linear(28, 28)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, 7)).transpose(1, 2) for part in (self.q, self.k, self.v))
        k, v = (part.repeat_interleave(2, dim=1) for part in (k, v))
        return self.out(((q @ k.mT * 7**-0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))


class GroupedFolded(Grouped):
    """The groups stay an axis of their own: (batch, key head, group · time, head_dim)."""

    def forward(self, x: Tensor) -> Tensor:
        batch, time, _ = x.shape
        q, k, v = (part(x).unflatten(-1, (-1, 7)).transpose(1, 2) for part in (self.q, self.k, self.v))
        q = q.reshape(batch, 2, 2 * time, 7)
        context = (q @ k.mT * 7**-0.5).softmax(-1) @ v
        return self.out(context.reshape(batch, 4, time, 7).transpose(1, 2).flatten(2))


class Disentangled(nn.Module):
    """DeBERTa: content to content, content to position, position to content, each scaled by 1/√(3 head_dim).

    Five heads, because with three of them 3 head_dim would be the width.
    """

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(20, 35) for _ in range(3))
        self.out = nn.Linear(35, 20)
        self.relative = nn.Embedding(63, HEAD_DIM)
        self.scale = (3 * HEAD_DIM) ** -0.5

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (5, HEAD_DIM)).transpose(1, 2) for part in (self.q, self.k, self.v))
        steps = torch.arange(x.shape[1])
        embedded = self.relative(steps[:, None] - steps + 31)
        scores = q @ k.mT * self.scale
        scores = scores + torch.einsum("bhid,ijd->bhij", q, embedded) * self.scale
        scores = scores + torch.einsum("bhjd,ijd->bhij", k, embedded) * self.scale
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


# Designs without a mask or an order; checked without promises.
OPEN: list[Callable[[], nn.Module]] = [
    Encoder,
    EncoderTopK,
    Perceiver,
    PerceiverConcat,
    ClassToken,
    HeadsBesideTime,
    ReducedKeys,
    Grouped,
    GroupedFolded,
    Disentangled,
]


class PixelAttention(nn.Module):
    """1×1 convolutions over (batch, channels, height, width), one head, a learned share of the result (SAGAN)."""

    def __init__(self, channels: int = D) -> None:
        super().__init__()
        self.query, self.key = nn.Conv2d(channels, 11, 1), nn.Conv2d(channels, 11, 1)
        self.value, self.gamma = nn.Conv2d(channels, channels, 1), nn.Parameter(torch.ones(1))
        self.scale = 11**-0.5

    def forward(self, image: Tensor) -> Tensor:
        q, k, v = (part(image).flatten(2) for part in (self.query, self.key, self.value))
        weights = torch.softmax(torch.bmm(q.transpose(1, 2), k) * self.scale, dim=-1)
        return image + self.gamma * torch.bmm(v, weights.transpose(1, 2)).view_as(image)


class ImageHeads(nn.Module):
    """A fused 1×1 convolution and several heads, as in diffusion models."""

    def __init__(self, channels: int = D) -> None:
        super().__init__()
        self.norm, self.qkv = nn.GroupNorm(3, channels), nn.Conv2d(channels, 3 * channels, 1)
        self.proj = nn.Conv2d(channels, channels, 1)

    def forward(self, image: Tensor) -> Tensor:
        batch, channels, height, width = image.shape
        qkv = self.qkv(self.norm(image)).reshape(batch * H, 3 * HEAD_DIM, height * width)
        q, k, v = qkv.split(HEAD_DIM, dim=1)
        root = HEAD_DIM**-0.25
        weights = torch.einsum("nct,ncs->nts", q * root, k * root).softmax(dim=-1)
        context = torch.einsum("nts,ncs->nct", weights, v).reshape(batch, channels, height, width)
        return image + self.proj(context)


class SwinWindows(nn.Module):
    """Shifted windows of 2×2 over (batch, height, width, D), -100 between pixels that are no neighbours."""

    def __init__(self, shift: int = 1) -> None:
        super().__init__()
        self.shift = shift
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.bias = nn.Parameter(torch.randn(H, 4, 4))

    def forward(self, image: Tensor) -> Tensor:
        height, width = image.shape[1:3]
        shifted = image.roll((-self.shift, -self.shift), dims=(1, 2))
        windows = self.windows(shifted)
        q, k, v = self.qkv(windows).reshape(len(windows), 4, 3, H, HEAD_DIM).permute(2, 0, 3, 1, 4)
        scores = (q * HEAD_DIM**-0.5) @ k.mT + self.bias
        mask = self.mask(height, width)
        scores = scores.view(-1, len(mask), H, 4, 4) + mask[None, :, None]
        context = scores.view(-1, H, 4, 4).softmax(-1) @ v
        merged = self.proj(context.transpose(1, 2).reshape(len(windows), 4, D))
        folded = merged.view(-1, height // 2, width // 2, 2, 2, D).transpose(2, 3).reshape(-1, height, width, D)
        return folded.roll((self.shift, self.shift), dims=(1, 2))

    @staticmethod
    def windows(image: Tensor) -> Tensor:
        """(batch, height, width, features) → (batch · windows, 4, features)."""
        batch, height, width, channels = image.shape
        cut = image.view(batch, height // 2, 2, width // 2, 2, channels)
        return cut.transpose(2, 3).reshape(-1, 4, channels)

    def mask(self, height: int, width: int) -> Tensor:
        """(windows, 4, 4): 0, or -100 between pixels that the roll brought together."""
        region = torch.zeros(1, height, width, 1)
        for number, (rows, columns) in enumerate(((0, 1), (1, 0), (1, 1)), start=1):
            region[:, -rows or height :, -columns or width :] = 0 if not (rows or columns) else number
        labels = self.windows(region).squeeze(-1)
        return (labels[:, None, :] != labels[:, :, None]).float() * -100.0


@attn_guard.contract(masks={"key_padding_mask": "ignore"})
class CleanedRows(nn.Module):
    """A padding mask and a causal mask may hide every key of a row; its NaN is replaced by zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT * HEAD_DIM**-0.5
        hidden = key_padding_mask[:, None, None] | later(x.shape[1])
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        weights = torch.where(hidden.all(-1, keepdim=True), 0.0, weights)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


@attn_guard.contract(masks={"key_padding_mask": "ignore"})
class OpenedRows(CleanedRows):
    """Rows without any key are opened before the softmax and zeroed after it."""

    def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        hidden = (key_padding_mask[:, None, None] | later(x.shape[1])).expand(-1, H, -1, -1)
        empty = hidden.all(dim=-1, keepdim=True)
        scores = (q @ k.mT * HEAD_DIM**-0.5).masked_fill(hidden & ~empty, -torch.inf)
        weights = scores.softmax(-1).masked_fill(empty, 0.0)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class PaddedSdpa(nn.Module):
    """`keep` says which keys are real; both masks are joined into one."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mask = keep.bool()[:, None, None]
        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


class PaddedEncoderLayer(nn.Module):
    """`nn.TransformerEncoderLayer` with its key padding mask; `nn.LayerNorm` before."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(D, H, 2 * D, batch_first=True, norm_first=True)

    def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
        hidden: Tensor = self.layer(x, src_key_padding_mask=key_padding_mask)
        return hidden


class ZeroedPads(nn.Module):
    """No mask on the scores, but padded values are zeroed before and the weights renormalised over the real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
        x = x.masked_fill(key_padding_mask[..., None], 0.0)
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        weights = (q @ k.mT * HEAD_DIM**-0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class AdditiveMask(nn.Module):
    """`bias` (batch, time) is added: 0 or -inf."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT * HEAD_DIM**-0.5 + bias[:, None, None]
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
