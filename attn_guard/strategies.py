"""Hypothesis strategies for tests of attention: shapes, lengths, masks, dtypes and inputs.

Sizes that happen to be equal hide mistakes (a mask of (batch, time) fits (time, time) when both are 3), and others show
only there; `shapes` therefore draws coincidences on purpose. Everything shrinks towards small sizes and masks that hide
little.

>>> @given(strategies.shapes())
... def test_my_layer(shape):
...     x = torch.randn(shape.batch, shape.queries, shape.d_model)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from attn_guard.contract import MaskMeaning
from attn_guard.errors import UsageError
from attn_guard.probe.calling import as_mask

Padding = Literal["right", "left", "holes"]


@dataclass(frozen=True)
class Shape:
    """The sizes of one attention computation: query (batch, heads, queries, head_dim), key and value (batch, heads,
    keys, head_dim)."""

    batch: int
    queries: int
    keys: int
    heads: int
    head_dim: int

    @property
    def d_model(self) -> int:
        return self.heads * self.head_dim


# Sizes that are made equal on purpose. Queries and keys of self-attention change together.
COINCIDENCES: dict[str, Callable[[Shape], Shape]] = {
    "none": lambda shape: shape,
    "one sample": lambda shape: replace(shape, batch=1),
    "one position": lambda shape: _with_time(shape, 1),
    "one head": lambda shape: replace(shape, heads=1),
    "time = batch": lambda shape: _with_time(shape, shape.batch),
    "time = heads": lambda shape: _with_time(shape, shape.heads),
    "time = head_dim": lambda shape: _with_time(shape, shape.head_dim),
    "batch = heads": lambda shape: replace(shape, batch=shape.heads),
    "heads = head_dim": lambda shape: replace(shape, heads=shape.head_dim),
    "queries = keys": lambda shape: replace(shape, keys=shape.queries),
}


def _with_time(shape: Shape, time: int) -> Shape:
    return replace(shape, queries=time, keys=time if shape.keys == shape.queries else shape.keys)


def shapes(
    *, batch: int = 4, time: int = 8, heads: int = 4, head_dim: int = 8, cross: bool = False
) -> SearchStrategy[Shape]:
    """Shapes up to the given sizes, with and without coincidences. With ``cross`` the keys have a length of their own.

    A size that a coincidence sets equal to another keeps to the other's limit. Raises `UsageError` for a limit below 1.
    """
    for name, limit in (("batch", batch), ("time", time), ("heads", heads), ("head_dim", head_dim)):
        if limit < 1:
            raise UsageError(f"shapes({name}={limit}): the largest size must be at least 1")
    return _shapes(batch, time, heads, head_dim, cross)


@st.composite
def _shapes(draw: st.DrawFn, batch: int, time: int, heads: int, head_dim: int, cross: bool) -> Shape:
    queries = draw(st.integers(1, time))
    shape = Shape(
        batch=draw(st.integers(1, batch)),
        queries=queries,
        keys=draw(st.integers(1, time)) if cross else queries,
        heads=draw(st.integers(1, heads)),
        head_dim=draw(st.integers(1, head_dim)),
    )
    return COINCIDENCES[draw(st.sampled_from(list(COINCIDENCES)))](shape)


def lengths(batch: int, time: int) -> SearchStrategy[list[int]]:
    """How many real tokens each sample of a batch has, from 1 to ``time``. Shrinks towards no padding."""
    return st.lists(st.integers(0, time - 1), min_size=batch, max_size=batch).map(
        lambda missing: [time - absent for absent in missing]
    )


def padding_masks(
    batch: int,
    time: int,
    *,
    meaning: MaskMeaning = "ignore",
    sides: Sequence[Padding] = ("right", "left", "holes"),
    dtype: torch.dtype = torch.float32,
) -> SearchStrategy[Tensor]:
    """(batch, time) masks of padded batches, in which every sample keeps at least one real token.

    ``meaning`` says what True means, as in `Contract.masks`; "additive" gives 0 and -inf in ``dtype``. Raises
    `UsageError` for an unknown side.
    """
    if not sides or not {*sides} <= {"right", "left", "holes"}:
        raise UsageError(f"padding_masks(sides={tuple(sides)!r}): expected some of 'right', 'left', 'holes'")
    return (
        st.sampled_from(list(sides))
        .flatmap(lambda side: _kept(batch, time, side))
        .map(lambda keep: as_mask(keep, meaning, dtype))
    )


def _kept(batch: int, time: int, side: Padding) -> SearchStrategy[Tensor]:
    """(batch, time): True at real tokens."""
    if side == "holes":
        return st.lists(_rows_with_a_key(time), min_size=batch, max_size=batch).map(lambda rows: ~torch.tensor(rows))
    place = torch.arange(time) if side == "right" else torch.arange(time).flip(0)
    return lengths(batch, time).map(lambda real: place < torch.tensor(real)[:, None])


@st.composite
def attention_masks(
    draw: st.DrawFn,
    queries: int,
    keys: int,
    *,
    meaning: MaskMeaning = "attend",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """(queries, keys) masks of any pattern in which every query keeps at least one key."""
    hidden = torch.tensor(draw(st.lists(_rows_with_a_key(keys), min_size=queries, max_size=queries)))
    return as_mask(~hidden, meaning, dtype)


def _rows_with_a_key(keys: int) -> SearchStrategy[list[bool]]:
    """Which keys are hidden; at least one is not."""
    return st.lists(st.booleans(), min_size=keys, max_size=keys).filter(lambda row: not all(row))


def dtypes(*, half: bool = True) -> SearchStrategy[torch.dtype]:
    """float32 and float64, and with ``half`` also float16 and bfloat16. Shrinks towards float32."""
    wide = [torch.float32, torch.float64]
    return st.sampled_from([*wide, torch.float16, torch.bfloat16] if half else wide)


@st.composite
def heads(
    draw: st.DrawFn, shape: Shape, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor, Tensor]:
    """Query (batch, heads, queries, head_dim), key and value (batch, heads, keys, head_dim) of a shape, normally
    distributed."""
    generator = torch.Generator().manual_seed(draw(_seeds))
    sizes = (shape.queries, shape.keys, shape.keys)
    query, key, value = (
        torch.randn(shape.batch, shape.heads, size, shape.head_dim, generator=generator) for size in sizes
    )
    return query.to(device, dtype), key.to(device, dtype), value.to(device, dtype)


@st.composite
def features(
    draw: st.DrawFn,
    batch: int,
    time: int,
    d_model: int,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:
    """(batch, time, d_model) features, normally distributed."""
    generator = torch.Generator().manual_seed(draw(_seeds))
    return torch.randn(batch, time, d_model, generator=generator).to(device, dtype)


_seeds = st.integers(0, 2**32 - 1)
