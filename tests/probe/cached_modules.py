"""Causal attention with a cache, in the styles that people write, right by default and wrong on request.

Modules take features (batch, time, WIDTH), the language models token ids (batch, time).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, HEAD_DIM = 24, 2, 12
LONGEST, BATCH, WORDS = 16, 5, 29
Pair = tuple[Tensor, Tensor]


def turned(x: Tensor, start: int | Tensor) -> Tensor:
    """Rotary positions by halves, for (batch, heads, time, head_dim)."""
    half = x.shape[-1] // 2
    places = torch.arange(x.shape[-2]) + start
    angle = places[:, None] * 10000 ** (-torch.arange(half) / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def seen(queries: int, keys: int) -> Tensor:
    """(queries, keys) bool: the last query sees all keys."""
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


class Parts(nn.Module):
    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def heads(self, x: Tensor) -> list[Tensor]:
        return [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1)]

    def merged(self, context: Tensor) -> Tensor:
        merged: Tensor = self.out(context.transpose(1, 2).flatten(2))
        return merged

    def grown(self, past: Pair | None, k: Tensor, v: Tensor) -> Pair:
        """The keys and values so far, with the new ones."""
        if past is None:
            return k, v
        if self.fault == "forgets":
            return k, v
        if self.fault == "forgets values":
            return torch.cat((past[0], k), 2), torch.cat((past[1], past[1][:, :, -1:].expand_as(v)), 2)
        if self.fault == "in front":
            return torch.cat((k, past[0]), 2), torch.cat((v, past[1]), 2)
        if self.fault == "twice":
            return torch.cat((past[0], k, k), 2), torch.cat((past[1], v, v), 2)
        return torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)


class TupleCache(Parts):
    """GPT-2: ``layer_past`` in, the present keys and values out; rotary positions."""

    def forward(self, x: Tensor, layer_past: Pair | None = None, use_cache: bool = False) -> Any:
        q, k, v = self.heads(x)
        past = 0 if layer_past is None else layer_past[0].shape[2]
        start = 0 if self.fault == "restarts" else past
        q, k = turned(q, start), turned(k, start)  # marked turn
        k, v = self.grown(layer_past, k, v)
        queries, keys = q.shape[2], k.shape[2]
        if self.fault == "aligned at the top":
            mask: Tensor | None = torch.ones(queries, keys, dtype=torch.bool).tril()
        elif self.fault == "unmasked with a cache":
            mask = None if layer_past is not None else seen(queries, keys)
        elif self.fault == "unmasked when it fills a cache":
            mask = None if use_cache else seen(queries, keys)
        else:
            mask = seen(queries, keys)
        out = self.merged(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
        return (out, (k, v)) if use_cache else out


class LateKeys(Parts):
    """Keys are cached before they are turned, and all of them are turned again at each step."""

    def forward(self, x: Tensor, past_kv: Pair | None = None) -> tuple[Tensor, Pair]:
        q, k, v = self.heads(x)
        k, v = self.grown(past_kv, k, v)
        past = k.shape[2] - q.shape[2]
        q = turned(q, past)
        turned_keys = turned(k, 0) if self.fault != "counts on" else turned(k, past)
        mask = seen(q.shape[2], k.shape[2])
        return self.merged(F.scaled_dot_product_attention(q, turned_keys, v, attn_mask=mask)), (k, v)


class StackedCache(Parts):
    """One tensor (2, batch, heads, time, head_dim) as ``kv_cache``."""

    def forward(self, x: Tensor, kv_cache: Tensor | None = None) -> tuple[Tensor, Tensor]:
        q, k, v = self.heads(x)
        k, v = self.grown(None if kv_cache is None else (kv_cache[0], kv_cache[1]), k, v)
        mask = seen(q.shape[2], k.shape[2])
        return self.merged(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)), torch.stack((k, v))


class DictCache(Parts):
    """A dictionary, filled in place, as ``incremental_state``."""

    def forward(self, x: Tensor, incremental_state: dict[str, Tensor] | None = None) -> tuple[Tensor, Any]:
        q, k, v = self.heads(x)
        if incremental_state is None:
            incremental_state = {}
        past = (incremental_state["k"], incremental_state["v"]) if "k" in incremental_state else None
        k, v = self.grown(past, k, v)
        incremental_state.update(k=k, v=v)
        mask = seen(q.shape[2], k.shape[2])
        return self.merged(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)), incremental_state


class Kept:
    """Keys and values of one layer, in an object of the caller's."""

    def __init__(self) -> None:
        self.pair: Pair | None = None


class ObjectCache(Parts):
    """An object that the caller makes and the module fills."""

    def forward(self, x: Tensor, cache: Kept | None = None) -> Tensor:
        q, k, v = self.heads(x)
        if cache is not None:
            k, v = cache.pair = self.grown(cache.pair, k, v)
        bare = self.fault == "unmasked with a cache" and cache is not None
        mask = None if bare else seen(q.shape[2], k.shape[2])
        return self.merged(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


class BufferCache(Parts):
    """Llama: buffers, and ``start_pos`` says where to write."""

    cache_k: Tensor
    cache_v: Tensor

    def __init__(self, fault: str = "", plain: bool = False) -> None:
        super().__init__(fault)
        for name in ("cache_k", "cache_v"):
            empty = torch.zeros(BATCH, HEADS, LONGEST, HEAD_DIM)
            if plain:
                setattr(self, name, empty)
            else:
                self.register_buffer(name, empty)

    def forward(self, x: Tensor, start_pos: int) -> Tensor:
        batch, time, _ = x.shape
        q, k, v = self.heads(x)
        start = 0 if self.fault == "restarts" else start_pos
        q, k = turned(q, start), turned(k, start)
        slot = max(0, start_pos - 1) if self.fault == "one slot off" else start_pos
        end = start_pos + time
        self.cache_k[:batch, :, slot : slot + time] = k
        self.cache_v[:batch, :, slot : slot + time] = v
        keys, values = self.cache_k[:batch, :, :end], self.cache_v[:batch, :, :end]
        mask = seen(time, end)
        return self.merged(F.scaled_dot_product_attention(q, keys, values, attn_mask=mask))


class IndexedCache(Parts):
    """gpt-fast: ``input_pos`` is a tensor of positions, keys of the whole buffer are looked at under a mask."""

    cache_k: Tensor
    cache_v: Tensor

    def __init__(self, fault: str = "") -> None:
        super().__init__(fault)
        for name in ("cache_k", "cache_v"):
            self.register_buffer(name, torch.zeros(BATCH, HEADS, LONGEST, HEAD_DIM))

    def forward(self, x: Tensor, input_pos: Tensor) -> Tensor:
        batch = x.shape[0]
        q, k, v = self.heads(x)
        self.cache_k[:batch].index_copy_(2, input_pos, k)
        self.cache_v[:batch].index_copy_(2, input_pos, v)
        places = torch.arange(len(input_pos)) if self.fault == "masked from 0" else input_pos
        mask = torch.arange(LONGEST) <= places[:, None]
        return self.merged(
            F.scaled_dot_product_attention(q, self.cache_k[:batch], self.cache_v[:batch], attn_mask=mask)
        )


class FlagCache(Parts):
    """A buffer that is None at first, and a counter; ``use_cache=True`` goes on where the last call ended."""

    cache_k: Tensor | None
    cache_v: Tensor | None

    def __init__(self, fault: str = "") -> None:
        super().__init__(fault)
        self.register_buffer("cache_k", None, persistent=False)
        self.register_buffer("cache_v", None, persistent=False)
        self.position = 0

    def forward(self, x: Tensor, use_cache: bool = False) -> Tensor:
        q, k, v = self.heads(x)
        start = self.position if use_cache and self.fault != "restarts" else 0
        q, k = turned(q, start), turned(k, start)
        if use_cache:
            past = None if self.cache_k is None or self.cache_v is None else (self.cache_k, self.cache_v)
            k, v = self.cache_k, self.cache_v = self.grown(past, k, v)
            self.position += x.shape[1]
        mask = seen(q.shape[2], k.shape[2])
        return self.merged(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


class RollingCache(Parts):
    """A window of three positions; older keys are dropped from the cache."""

    WINDOW = 3

    def forward(self, x: Tensor, cache: Pair | None = None) -> tuple[Tensor, Pair]:
        q, k, v = self.heads(x)
        k, v = self.grown(cache, k, v)
        queries, keys = q.shape[2], k.shape[2]
        mask = seen(queries, keys) & ~seen(queries, keys).tril(keys - queries - self.WINDOW)
        kept = self.WINDOW - 2 if self.fault == "drops one too many" else self.WINDOW - 1
        out = self.merged(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
        return out, (k[:, :, -kept:], v[:, :, -kept:])


class LanguageModel(nn.Module):
    """Token ids → logits, two layers, positions from a table; a list of pairs as cache."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.tokens, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(LateKeys() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor, past_key_values: list[Pair] | None = None) -> tuple[Tensor, list[Pair]]:
        past = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        start = 0 if self.fault == "restarts" else past
        positions = torch.arange(start, start + ids.shape[1])  # marked positions
        x = self.tokens(ids) + self.places(positions)
        present = []
        for number, layer in enumerate(self.layers):
            before = None if past_key_values is None else past_key_values[number]
            if self.fault == "shares the first layer's cache" and past_key_values is not None:
                before = past_key_values[0]
            attended, pair = layer(x, before)
            x = x + attended
            present.append(pair)
        return self.head(x), present


STYLES: dict[str, Callable[[], nn.Module]] = {
    "tuple": TupleCache,
    "late keys": LateKeys,
    "one tensor": StackedCache,
    "dictionary": DictCache,
    "buffers": BufferCache,
    "plain tensors": lambda: BufferCache(plain=True),
    "indexed buffers": IndexedCache,
    "flag": FlagCache,
    "rolling": RollingCache,
    "language model": LanguageModel,
}

# Style, fault, code, the first position that is decoded wrongly.
FAULTS: list[tuple[Callable[..., nn.Module], str, str, int]] = [
    (TupleCache, "forgets", "ATN701", 1),
    (TupleCache, "forgets values", "ATN701", 1),
    (TupleCache, "in front", "ATN701", 2),
    (TupleCache, "twice", "ATN701", 1),
    (TupleCache, "restarts", "ATN702", 1),
    (TupleCache, "aligned at the top", "ATN701", 1),
    (TupleCache, "unmasked with a cache", "ATN701", 2),
    (TupleCache, "unmasked when it fills a cache", "ATN701", 0),
    (LateKeys, "in front", "ATN701", 1),
    (LateKeys, "counts on", "ATN701", 1),
    (StackedCache, "twice", "ATN701", 1),
    (DictCache, "forgets", "ATN701", 1),
    (BufferCache, "restarts", "ATN702", 1),
    (BufferCache, "one slot off", "ATN701", 1),
    (IndexedCache, "masked from 0", "ATN701", 1),
    (FlagCache, "restarts", "ATN702", 1),
    (FlagCache, "in front", "ATN701", 2),
    (RollingCache, "drops one too many", "ATN701", 2),
    (LanguageModel, "restarts", "ATN701", 1),
    (LanguageModel, "shares the first layer's cache", "ATN701", 1),
]
