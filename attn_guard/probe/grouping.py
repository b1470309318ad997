"""Which heads of keys the heads of queries meet, where there are fewer of them, and what says which should meet.

A layer that is trained from scratch may number its heads either way, so that an order is wrong only against another
statement of the same module: queries viewed as (key heads, group), or another path through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from attn_guard.probe.blame import RESHAPES
from attn_guard.probe.influence import Influence
from attn_guard.probe.sites import Trace
from attn_guard.probe.tape import Op

if TYPE_CHECKING:
    from attn_guard.probe.anatomist import Anatomy
    from attn_guard.probe.parity import Divergence

BLOCKS, TILES = "next to each other", "in turn"
_PARTS: tuple[Literal["key"], Literal["value"]] = ("key", "value")


@dataclass(frozen=True)
class Grouping:
    """The heads of one attention computation, numbered as their columns lie in the projections.

    ``pairs`` are (query head, key head) of every slice; none where a slice holds columns of several heads. With
    ``part`` "value", the heads of values take the place of those of keys.
    """

    trace: Trace
    influence: Influence
    part: Literal["key", "value"] = "key"

    @cached_property
    def pairs(self) -> frozenset[tuple[int, int]]:
        queries, keys = (_numbered(self.influence.columns_of(name)) for name in ("query", self.part))
        if queries is None or keys is None or len(queries) != len(keys):
            return frozenset()
        both = zip(queries.tolist(), keys.tolist(), strict=True)
        return frozenset((query, key) for rows, columns in both for query in set(rows) for key in set(columns))

    @property
    def heads(self) -> tuple[int, int]:
        """(query heads, key heads); (0, 0) where they are not known."""
        queries, keys = {query for query, _ in self.pairs}, {key for _, key in self.pairs}
        return len(queries), len(keys)

    @property
    def order(self) -> str:
        """Whether the query heads of a key head lie next to each other or in turn; "" for neither."""
        heads, key_heads = self.heads
        if not 1 < key_heads < heads or heads % key_heads:
            return ""
        if self.pairs == {(query, query // (heads // key_heads)) for query in range(heads)}:
            return BLOCKS
        return TILES if self.pairs == {(query, query % key_heads) for query in range(heads)} else ""

    @property
    def viewed(self) -> str:
        """The order that a view of the queries as (key heads, group) or (group, key heads) states; "" without one."""
        path = self.trace.flow.chain(self.influence.query_origin.rows.value, self.trace.query)
        values = self.trace.flow.tape.values
        shapes = [tuple(values[op.output].shape) for op in path if op.name in RESHAPES]
        head_dim = values[self.trace.query].shape[-1]
        views = [shape[-3:-1] for shape in shapes if len(shape) > 4 and shape[-1] == head_dim and 1 not in shape[-3:-1]]
        heads, key_heads = self.heads if views else (0, 0)
        if not 1 < key_heads < heads or key_heads * key_heads == heads:
            return ""
        groups = heads // key_heads
        stated = {(key_heads, groups): BLOCKS, (groups, key_heads): TILES}
        return next((stated[view] for view in views if view in stated), "")

    @cached_property
    def spread(self) -> Op | None:
        """The operation that spreads the heads of keys, or values, over those of queries."""
        trace, influence, values = self.trace, self.influence, self.trace.flow.tape.values
        of_keys = self.part == "key"
        origin, operand = (influence.key_origin, trace.key) if of_keys else (influence.value_origin, trace.value)
        path = trace.flow.chain(origin.rows.value, operand)
        return next((op for op in path if values[op.output].numel() > values[op.inputs[0]].numel()), None)

    @property
    def spreading(self) -> Op:
        """The same, or else the product with the keys or values."""
        return self.spread or (self.trace.scores if self.part == "key" else self.trace.context)


def _numbered(columns: Tensor | None) -> Tensor | None:
    if columns is None or (columns < 0).any():
        return None
    numbered: Tensor = torch.unique(columns, return_inverse=True)[1]
    return numbered


@dataclass(frozen=True)
class Contradiction:
    """A grouping, and who states the other order."""

    grouping: Grouping
    stated: str
    by: str


def contradictions(sites: Sequence[Anatomy], divergences: Sequence[Divergence]) -> Iterator[Contradiction]:
    """Groupings against the view of their own queries, of keys against values, or against another path through the
    module.

    Of two orders, the one in which query heads take the key heads in turn is told, as `enable_gqa` of torch does not.
    """
    for site in sites:
        grouping = Grouping(site.trace, site.influence)
        if grouping.viewed and grouping.order and grouping.viewed != grouping.order:
            yield Contradiction(grouping, grouping.viewed, "by the view of the queries")
    seen = [*sites, *(site for divergence in divergences for site in divergence.other.sites)]
    for site in seen:
        of_keys, of_values = (Grouping(site.trace, site.influence, part) for part in _PARTS)
        if of_keys.spread and of_values.spread and {of_keys.order, of_values.order} == {BLOCKS, TILES}:
            wrong, by = (of_keys, "values") if of_keys.order == TILES else (of_values, "keys")
            yield Contradiction(wrong, BLOCKS, f"by the {by}")
            return
    for divergence in divergences:
        for pair in zip(divergence.usual.sites, divergence.other.sites, strict=False):
            ours, theirs = (Grouping(site.trace, site.influence) for site in pair)
            if {ours.order, theirs.order} == {BLOCKS, TILES}:
                wrong, by = (ours, divergence.other.text) if ours.order == TILES else (theirs, "the usual path")
                yield Contradiction(wrong, BLOCKS, f"on {by}")
