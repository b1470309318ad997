"""Whether a cache holds all the positions that were decoded, and what makes it shorter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from attn_guard.findings import Location
from attn_guard.probe.hygiene import preserved

if TYPE_CHECKING:
    from attn_guard.probe.decoder import Decoder
    from attn_guard.probe.mismatch import Mismatch


@dataclass(frozen=True)
class ShortCache:
    """After ``decoded`` positions the cache holds ``held``. ``location`` is where it is made; None where the cache that
    came in goes out again."""

    decoded: int
    held: int
    location: Location | None


def short_cache(found: Mismatch) -> ShortCache | None:
    """None where the cache holds what was decoded, or is no tuple of tensors that grow by an axis."""
    decoder, start = found.decoder, found.start
    if decoder.cache is None or start == 0 or found.error is not None:
        return None
    with preserved(decoder.xray.module, decoder.xray.seed):
        first, second, state = (_caches(decoder, *ways) for ways in (((1, 1), 1), ((2, 1), 2), (found.lengths, start)))
        place = _growing(first, second)
        if place is None or len(state) <= place[0]:
            return None
        number, axis = place
        held = state[number].shape[axis]
        if held >= start:
            return None
        return ShortCache(start, held, _made_at(decoder, found, state[number]))


def _caches(decoder: Decoder, lengths: tuple[int, ...], start: int) -> list[Tensor]:
    """The tensors of the cache after the chunks before ``start``."""
    _, arguments = decoder.before(lengths, start, start + 1)
    return _tensors(arguments[decoder.cache or ""])


def _tensors(state: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(state) if isinstance(leaf, Tensor) and leaf.dim() > 2]


def _growing(first: list[Tensor], second: list[Tensor]) -> tuple[int, int] | None:
    """(number of the tensor, axis) that is one longer after two positions than after one."""
    for number, (short, long) in enumerate(zip(first, second, strict=False)):
        if short.dim() == long.dim():
            axes = [axis for axis in range(short.dim()) if long.shape[axis] != short.shape[axis]]
            if len(axes) == 1 and long.shape[axes[0]] == short.shape[axes[0]] + 1:
                return number, axes[0]
    return None


def _made_at(decoder: Decoder, found: Mismatch, cache: Tensor) -> Location | None:
    """Where the call before the mismatch makes the cache that it returns."""
    ends = [sum(found.lengths[: count + 1]) for count in range(len(found.lengths))]
    number = ends.index(found.start)
    tape = decoder.recorded(*decoder.before(found.lengths, found.start - found.lengths[number], found.start))
    results = (value for value in tape.results() if tape.values[value].shape == cache.shape)
    makers = [tape.maker(value) for value in results]
    return next((maker.location for maker in makers if maker is not None), None)
