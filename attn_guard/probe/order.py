"""Which keys a query sees, by their distance in time: what causal masks and windows come to.

Measured on the weights that meet the values: a key is seen where its weight is not exactly zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attn_guard.findings import Location
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.influence import NONE

if TYPE_CHECKING:
    from attn_guard.probe.streams import Streams

# Fewer keys than this do not show whether a mask is a triangle, and which.
FEWEST_KEYS = 3

Map = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Order:
    """The keys that the queries of one attention computation see.

    ``seen[slice, query, key]`` is True where a key has weight. Rows in which masks block every key, and a finite fill
    leaves weight on all of them, count as seeing none.
    """

    anatomy: Anatomy

    @cached_property
    def seen(self) -> Tensor | None:
        """None where the axes of the weights are unclear."""
        weights = self.anatomy.final_weights
        if weights is None:
            return None
        blocked = self.anatomy.blocked
        seen = (weights.nan_to_num(0.0) != 0).cpu()
        if blocked is not None and blocked.shape == seen.shape:
            open_by_fill = blocked.cpu().all(dim=-1, keepdim=True) & seen.all(dim=-1, keepdim=True)
            seen &= ~open_by_fill
        return seen

    @cached_property
    def judged(self) -> Tensor:
        """[slice, query, key], True at queries that the masks leave some key: what another one sees is up to the fill,
        or to how a NaN is cleaned. Only where `seen` is known."""
        assert self.seen is not None
        blocked = self.anatomy.blocked
        if blocked is None or blocked.shape != self.seen.shape:
            return torch.ones_like(self.seen)
        return ~blocked.cpu().all(dim=-1, keepdim=True).expand(self.seen.shape)

    @cached_property
    def distance(self) -> Tensor | None:
        """[slice, query, key]: places from the query's own key to a key; None where order is unknown."""
        distance = self.anatomy.influence.distance
        return (
            distance if distance is not None and self.seen is not None and distance.shape == self.seen.shape else None
        )

    @property
    def offset(self) -> int | None:
        """Where a triangular mask is off by one: +1 if every query sees the next key as well, -1 if none sees its own;
        0 otherwise, and None where order is unknown."""
        if self.seen is None or self.distance is None or self.seen.shape[-1] < FEWEST_KEYS:
            return None
        if _sees_one_step_ahead(self.seen, self.distance):
            return 1
        return -1 if _is_blind_to_itself(self.seen, self.distance) else 0

    @property
    def misaligned(self) -> bool:
        """Whether a triangle starts at the top left although the queries are not the first of the keys."""
        if self.seen is None or self.seen.shape[-2] == self.seen.shape[-1]:
            return False
        triangle = torch.ones(self.seen.shape[-2:], dtype=torch.bool).tril()
        if bool(triangle.all()) or not bool((self.seen == triangle).all()):
            return False
        if self.distance is not None:
            own = -self.distance[..., 0]
            return bool((own > torch.arange(own.shape[-1])).all())
        return self.anatomy.influence.is_self is False

    @property
    def triangular(self) -> bool:
        """Whether the keys that are seen form a triangle, from the top left or to the bottom right."""
        if self.seen is None or min(self.seen.shape[-2:]) < 2:
            return False
        full = torch.ones(self.seen.shape[-2:], dtype=torch.bool)
        queries, keys = full.shape
        return any(bool((self.seen == full.tril(shift)).all()) for shift in {0, keys - queries} if shift < keys - 1)

    def meetings(self, streams: Streams, labels: Tensor) -> Tensor | None:
        """[slice, query, key]: where a query sees a key whose label is another. Labels are per row of the main stream;
        None where rows do not line up with it."""
        influence = self.anatomy.influence
        queries = streams.rows_at(influence.query_origin, influence.queries)
        keys = streams.rows_at(influence.key_origin, influence.keys)
        if self.seen is None or queries is None or keys is None:
            return None
        if (queries.shape[0], queries.shape[1], keys.shape[1]) != self.seen.shape:
            return None
        known = (queries >= 0)[:, :, None] & (keys >= 0)[:, None, :]
        differ = labels[queries.clamp_min(0)][:, :, None] != labels[keys.clamp_min(0)][:, None, :]
        return self.seen & known & differ

    @cached_property
    def window(self) -> int | None:
        """How many places a query sees, from the first to the last of them; None where order is unknown.

        Keys that all later queries see from afar (sinks) do not count, unless there are none but such.
        """
        if self.seen is None or self.distance is None:
            return None
        near = self.seen & ~self._sinks
        if not near.any():
            return None
        return int(self.distance[near].max().clamp_min(0) - self.distance[near].min().clamp_max(0)) + 1

    @property
    def keys(self) -> int:
        return 0 if self.seen is None else self.seen.shape[-1]

    def outside(self, window: int) -> Map:
        """[query, key], with 2 where a key that is seen stands further back than a window of this size."""
        if self.seen is None or self.distance is None:
            return ()
        return drawn(self.seen.any(dim=0), (self.seen & (self.distance <= -window)).any(dim=0))

    @property
    def _sinks(self) -> Tensor:
        """[slice, 1, key]: keys that every query at or after them sees, the last one included; none where each of the
        far keys is one."""
        assert self.seen is not None
        assert self.distance is not None
        earlier = self.distance <= 0
        seen_by_all = (self.seen | ~earlier).all(dim=-2, keepdim=True)
        far = (self.distance <= -self.distance.shape[-1] // 2).any(dim=-2, keepdim=True)
        sinks = seen_by_all & far
        return sinks & ~(sinks | ~far).all(dim=-1, keepdim=True)

    @property
    def sees_filling(self) -> bool:
        """Whether keys that fill up a slice at the border, where others hold keys of their own, have weight."""
        keys = self.anatomy.influence.keys
        if self.seen is None or keys.shape != (self.seen.shape[0], self.seen.shape[2]):
            return False
        filling = keys == NONE
        filling &= (keys >= 0).any(dim=0)
        return bool((self.seen & filling[:, None, :]).any())

    @property
    def map(self) -> Map:
        """[query, key], as reports draw it: 1 seen, 0 not; 2 where a key that is seen comes later."""
        if self.seen is None:
            return ()
        later = self.anatomy.influence.later
        forbidden = self.seen & later if later is not None and later.shape == self.seen.shape else self.seen & False
        return drawn(self.seen.any(dim=0), forbidden.any(dim=0))

    @property
    def place(self) -> Location:
        """The line of the mask that makes the order, or of the softmax where none does."""
        return mask_place(self.anatomy)


def _sees_one_step_ahead(seen: Tensor, distance: Tensor) -> bool:
    """The next key is seen, and none of those that come after it."""
    later = distance > 1
    return bool(later.any() and (seen & (distance == 1)).any() and not (seen & later).any())


def _is_blind_to_itself(seen: Tensor, distance: Tensor) -> bool:
    """Earlier keys are seen, the own key is not; the first query, which has none before it, is left with nothing."""
    first = (distance >= 0).all(dim=-1)
    past, rest = seen & (distance < 0), seen & (distance >= 0)
    return bool(past.any() and not rest.any() and first.any() and not seen[first].any())


def drawn(seen: Tensor, forbidden: Tensor) -> Map:
    """Two bool maps (outputs, inputs) as one of 0 (no influence), 1 (influence) and 2 (forbidden influence)."""
    return tuple(tuple(row) for row in (seen.long() + (seen & forbidden).long()).tolist())


def mask_place(anatomy: Anatomy) -> Location:
    """The line of the first mask on the scores, or of the softmax where there is none."""
    applied = anatomy.masks
    return applied[0].op.location if applied else anatomy.trace.softmax.location
