"""`flex_attention` in plain operations.

It is an operator of higher order, of which a dispatch mode sees nothing: no scores, no mask and no softmax. Here it is
computed as its compiled kernel does it, also where the blocks of a mask hide more, or less, than its ``mask_mod``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import log
from typing import Any

import torch
from torch import Tensor

_MODULE = "torch.nn.attention.flex_attention"
_AS_WRITTEN = "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"


def is_flex(func: Any) -> bool:
    """Whether a function is the operator, in a torch that has all that it is computed with here."""
    return isinstance(func, torch._ops.HigherOrderOperator) and func.__name__ == "flex_attention" and is_readable()


def is_loaded() -> bool:
    """Whether `flex_attention` has been imported, and can be told to run as it is written."""
    return hasattr(sys.modules.get(_MODULE), _AS_WRITTEN)


def is_readable() -> bool:
    """Whether the torch that `flex_attention` is loaded from has what is needed here; older ones have less."""
    try:
        from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex  # noqa: F401
    except ImportError:
        return False
    return is_loaded() and hasattr(sys.modules[_MODULE], "noop_mask") and hasattr(torch, "_safe_softmax")


@contextmanager
def uncompiled() -> Iterator[None]:
    """Where nobody compiles it, torch compiles it itself and warns of that; inside, it does neither."""
    if not is_loaded():
        yield
        return
    module = sys.modules[_MODULE]
    before = getattr(module, _AS_WRITTEN)
    setattr(module, _AS_WRITTEN, True)
    try:
        yield
    finally:
        setattr(module, _AS_WRITTEN, before)


def plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: tuple[Any, ...],
    scale: float,
    *_: Any,
    **__: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """The context, and the sum and the largest of the scores as powers of two, as the operator gives them."""
    samples, heads = query.shape[:2]
    key, value = (_spread(part, samples, heads) for part in (key, value))
    precision = torch.promote_types(query.dtype, torch.float32)
    scores = query.to(precision) @ key.to(precision).mT * scale
    positions = [torch.arange(size, device=query.device) for size in scores.shape]
    scores = _for_each_cell(score_mod, scores, *positions)
    seen = _seen(block_mask, positions)
    if seen is not None:
        scores = torch.where(seen, scores, -torch.inf)
    weights = torch._safe_softmax(scores, dim=-1).to(value.dtype)
    return weights @ value, scores.logsumexp(dim=-1) / log(2), scores.amax(dim=-1) / log(2)


def _spread(part: Tensor, samples: int, heads: int) -> Tensor:
    """Keys or values for every head and sample of the queries."""
    if part.shape[1] != heads:
        part = part.repeat_interleave(heads // part.shape[1], dim=1)
    return part if part.shape[0] == samples else part.expand(samples, -1, -1, -1)


def _for_each_cell(mod: Callable[..., Tensor], *given: Tensor) -> Tensor:
    """A function of the places (and the score) of one cell, for all cells; ``given`` ends with the positions."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    scores = (0,) * (len(given) - 4)
    for axis in (3, 2, 1, 0):
        mod = torch.vmap(mod, in_dims=(*scores, *(0 if other == axis else None for other in range(4))))
    with TransformGetItemToIndex():
        return mod(*given)


def _seen(block_mask: tuple[Any, ...], positions: list[Tensor]) -> Tensor | None:
    """(samples, heads, queries, keys), True where a query sees a key; None where nothing was said of it."""
    *_, rows, columns, mask_mod = block_mask
    size = rows, columns
    counts, indices, whole_counts, whole_indices = _blocks(block_mask)
    nothing = sys.modules[_MODULE].noop_mask
    seen = None if mask_mod is nothing else _for_each_cell(mask_mod, *positions)
    listed = _listed(counts, indices, positions, size)
    if whole_counts is None or not whole_counts.any():
        if listed.all():
            return seen
        return listed if seen is None else listed & seen
    return _listed(whole_counts, whole_indices, positions, size) | (listed if seen is None else listed & seen)


def _blocks(block_mask: tuple[Any, ...]) -> list[Any]:
    """Of the blocks in which ``mask_mod`` is asked, and of those that are seen as a whole: counts and indices."""
    return [part for part in block_mask if part is None or isinstance(part, Tensor)][:4]


def _listed(counts: Tensor, indices: Tensor, positions: list[Tensor], size: tuple[int, int]) -> Tensor:
    """The cells of the blocks that are listed: of each row of blocks, the first ``counts`` of its ``indices``."""
    row, column = (place // length for place, length in zip(positions[2:], size, strict=True))
    blocks = -(-len(column) // size[1])
    is_listed = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
    places = torch.where(is_listed, indices, blocks).long().clamp(max=blocks)
    found = torch.zeros(*indices.shape[:-1], blocks + 1, dtype=torch.bool, device=indices.device)
    return found.scatter(-1, places, True)[..., row, :][..., column]
