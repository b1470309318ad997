"""Which positions each value of a site depends on, measured by replaying the tape with one position changed at a time.

No tolerance is needed: what does not depend on a position stays the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attn_guard.probe.flow import LAYOUT, NORM, PRODUCT, SUM, stacked
from attn_guard.probe.moves import moved_labels
from attn_guard.probe.origins import Origin, Rows, feature_axis, origin, rows_of
from attn_guard.probe.replay import Replay
from attn_guard.probe.sites import Trace
from attn_guard.probe.tape import Op, identical, same

NONE = -1
SEVERAL = -2

# Of more positions than this, a sample is changed; of fewer, where all replays together would compute more numbers
# than this.
MOST_POSITIONS = 64
FEWEST_POSITIONS = 4
MOST_NUMBERS = 30_000_000

# Operations after which a position's numbers are still found in rows of their own, or are moved as whole rows.
_ELEMENTWISE = frozenset("neg neg_ mean pow sqrt clamp_min tanh relu gelu silu".split())
_REARRANGES = frozenset(
    """
    gather index index_select unfold im2col roll as_strided constant_pad_nd flip overwrite copy_ repeat_interleave
    """.split()
)
KEEPS_ROWS = (LAYOUT | PRODUCT | SUM | NORM | _ELEMENTWISE) - _REARRANGES


@dataclass(frozen=True)
class Influence:
    """What changes where when one position of a site changes.

    ``queries[n, i]`` is the row of ``query`` origin that query i of slice n (one head of one sample) comes from,
    ``keys[n, j]`` and ``values[n, j]`` likewise (`NONE`: no row, `SEVERAL`: more than one). ``known`` is the same
    computation in another recording: what holds the same numbers there comes from the same rows.
    """

    trace: Trace
    seed: int = 0
    known: Influence | None = None

    @cached_property
    def query_origin(self) -> Origin:
        return self._origin("query")

    @cached_property
    def key_origin(self) -> Origin:
        return self._origin("key")

    @cached_property
    def value_origin(self) -> Origin:
        return self._origin("value")

    def _origin(self, name: str) -> Origin:
        known: Origin | None = None if self.known is None else getattr(self.known, f"{name}_origin")
        projection = getattr(self.trace, f"{name}_projection")
        return origin(self.trace.flow, getattr(self.trace, name), projection, known)

    @cached_property
    def queries(self) -> Tensor:
        return _named(self._rows["query"], self.query_origin)

    @cached_property
    def keys(self) -> Tensor:
        return _named(self._rows["key"], self.key_origin)

    @cached_property
    def values(self) -> Tensor:
        return _named(self._rows["value"], self.value_origin)

    @cached_property
    def _rows(self) -> dict[str, Tensor]:
        """[slice, row] of each operand: the row of its origin that it comes from."""
        if self.known is not None and all(self._is_known(name, self.known) for name in self.features):
            return self.known._rows
        return {name: self._rows_along(name, axis) for name, axis in self.features.items()}

    def _is_known(self, name: str, known: Influence) -> bool:
        """Whether an operand and its origin hold the numbers that they have in the other recording."""
        here, there = (one.trace.flow.tape.values[getattr(one.trace, name)] for one in (self, known))
        source, other = (getattr(one, f"{name}_origin").rows.elements for one in (self, known))
        return source is other and self.features == known.features and identical(here, there)

    def _rows_along(self, name: str, axis: int) -> Tensor:
        """The row of its origin that all numbers along an axis of an operand come from (`NONE`, `SEVERAL`)."""
        moved = self._moved.get(name)
        return decoded(self._bits[name].any(dim=axis)) if moved is None else _common(moved, axis)

    @property
    def features(self) -> dict[str, int]:
        """The axis of each operand that holds the features of one row."""
        query, key = (-2, -1) if self.trace.flipped else (-1, -2)
        return {"query": query, "key": key, "value": -2 if self.trace.turned else -1}

    @cached_property
    def over_channels(self) -> bool:
        """Whether channels attend to channels: one row of an operand holds all positions, one column each of them."""
        return any(
            bool((rows == SEVERAL).any() and (self._rows_along(name, -3 - self.features[name]) >= 0).all())
            for name, rows in self._rows.items()
        )

    @cached_property
    def over_heads(self) -> bool:
        """Whether heads attend to heads: all queries and keys of a slice are cut from the row of one position.

        A single vector per sample that is cut into pieces has no other positions that could be meant."""
        source = self.trace.flow.tape.values[self.query_origin.source]
        return source.dim() > 2 and all(
            rows.shape[1] > 1 and bool(((rows == rows[:, :1]) & (rows >= 0)).all())
            for rows in (self.queries, self.keys)
        )

    @cached_property
    def heads_in_product(self) -> int:
        """How many heads the scores product adds up: those that the query was cut into and that the product's own call
        puts together again; 1 where it keeps them apart."""
        trace, values = self.trace, self.trace.flow.tape.values
        path = trace.flow.chain(self.query_origin.rows.value, trace.query)
        before = [op for op in path if op.place != trace.scores.place]
        if trace.query_projection is None or not before or before[-1] is path[-1]:
            return 1
        width, cut = values[trace.query].shape[-1], values[before[-1].output].shape
        heads, rest = divmod(width, cut[-1])
        return heads if cut[-1] > 1 and not rest and heads in cut[:-1] else 1

    def columns_of(self, name: str) -> Tensor | None:
        """[slice, row]: which of the blocks of ``head_dim`` columns of its origin each query, key or value is cut from;
        None where the columns do not divide into such blocks."""
        source: Origin = getattr(self, f"{name}_origin")
        operand: int = getattr(self.trace, name)
        head_dim = self.trace.flow.tape.values[operand].shape[self.features[name]]
        places, width = source.rows.elements.shape
        if width % head_dim:
            return None
        blocks = source.rows.elements.view(places, -1, head_dim).transpose(0, 1).flatten(1)
        rows = Rows(source.rows.tape, source.rows.value, blocks)
        differences = self._differences((rows,), halves(len(rows)), [operand])
        return decoded(by_bit([stacked(one[operand]).any(dim=self.features[name]) for one in differences]))

    @property
    def _operands(self) -> Iterator[tuple[Rows, dict[str, int]]]:
        """Each origin's rows, with the operands that come from them."""
        trace = self.trace
        parts = {
            "query": (self.query_origin.rows, trace.query),
            "key": (self.key_origin.rows, trace.key),
            "value": (self.value_origin.rows, trace.value),
        }
        for rows in {part.value: part for part, _ in parts.values()}.values():
            yield rows, {name: operand for name, (part, operand) in parts.items() if part.value == rows.value}

    @cached_property
    def _moved(self) -> dict[str, Tensor]:
        """[slice, row, column] of each operand that its origin is only moved to: the row that each number comes
        from."""
        found: dict[str, Tensor] = {}
        for rows, operands in self._operands:
            moved = moved_labels(self.trace.flow, rows, torch.arange(len(rows)), list(operands.values()))
            found |= {name: stacked(moved[operand]) for name, operand in operands.items() if operand in moved}
        return found

    @cached_property
    def _bits(self) -> dict[str, Tensor]:
        """[bit, 0 or 1, slice, row, column] of each other operand: where it differs when the rows of its origin whose
        number has this bit (0: has it not) are changed. Log2 of the rows many replays tell where every row goes."""
        found: dict[str, Tensor] = {}
        for rows, operands in self._operands:
            names = [name for name in operands if name not in self._moved]
            if names:
                targets = [operands[name] for name in names]
                differences = self._differences((rows,), halves(len(rows)), targets)
                for name, target in zip(names, targets, strict=True):
                    found[name] = by_bit([stacked(one[target]) for one in differences])
        return found

    def _differences(
        self, parts: Sequence[Rows], groups: Sequence[Tensor], targets: Sequence[int]
    ) -> list[dict[int, Tensor]]:
        """For each group of rows: where the targets differ when these rows of all ``parts`` are changed."""
        tape = self.trace.flow.tape
        replay = Replay(tape, [part.value for part in parts], targets)
        base = replay({part.value: tape.values[part.value].clone() for part in parts})
        generator = torch.Generator().manual_seed(self.seed)
        found = []
        for group in groups:
            again = replay({part.value: part.changed(group, generator) for part in parts})
            found.append({target: ~same(again[target], base[target]).cpu() for target in targets})
        return found

    def rows_at(self, source: Origin, value: int) -> Tensor:
        """For each number of a value, the row of an origin that it comes from (`NONE`, `SEVERAL`)."""
        differences = self._differences((source.rows,), halves(len(source.rows)), [value])
        return decoded(by_bit([one[value] for one in differences]))

    def places(self, source: Origin, own: Tensor) -> tuple[Tensor, Tensor]:
        """(place, sample) of each row of an origin: where it stands in the slices ``own`` that hold it, and which of
        the distinct slices that is; `NONE` for a row that no slice holds."""
        place = torch.full((len(source.rows),), NONE)
        sample = torch.full((len(source.rows),), NONE)
        rows_of_position = {position: row for row, position in enumerate(source.positions.tolist())}
        for number, held in enumerate(dict.fromkeys(tuple(row) for row in own.tolist())):
            for index, position in enumerate(held):
                row = rows_of_position.get(position, NONE)
                if row >= 0:
                    place[row], sample[row] = index, number
        return place, sample

    @cached_property
    def slices(self) -> Tensor | None:
        """[slice, query, key]: whether the context of query i depends on key j; None where keys do not line up.

        A key that comes from no input position (a learned one) shows no dependence. Of very many keys a sample is
        looked at.
        """
        if not self._lines_up:
            return None
        rows = self._rows["key"]
        keys, values = self.key_origin.rows, self.value_origin.rows
        parts = [keys, values] if values.value != keys.value and len(values) == len(keys) else [keys]
        target = self.trace.context.output
        groups = sample(_groups(rows), self.trace.flow.tape.values[self.trace.scores.output].numel())
        shape = stacked(self.trace.flow.tape.values[target]).shape
        features = self.features["value"]
        found = torch.zeros(shape[0], shape[-3 - features], rows.shape[1], dtype=torch.bool)
        for group, difference in zip(groups, self._differences(parts, groups, [target]), strict=True):
            changed = stacked(difference[target]).any(dim=features)
            found |= changed[:, :, None] & torch.isin(rows, group)[:, None, :]
        return found

    @property
    def _lines_up(self) -> bool:
        """Whether each key comes from one row, and the contexts are of the slices that the keys are of."""
        rows, context = self._rows["key"], self.trace.flow.tape.values[self.trace.context.output]
        known = not (rows == SEVERAL).any() and not self.trace.sideways
        return bool(known and stacked(context).shape[0] == rows.shape[0])

    @property
    def map(self) -> Tensor | None:
        """[query, key]: whether the context of query i depends on key j in any slice."""
        return None if self.slices is None else self.slices.any(dim=0)

    @cached_property
    def is_self(self) -> bool | None:
        """Whether queries and keys come from the same positions of the same tensor; None where that cannot be told."""
        if self.query_origin.source != self.key_origin.source:
            return None if self.trace.query_projection is None else False
        shared = torch.isin(self.queries[self.queries >= 0], self.keys)
        return bool(shared.any())

    @cached_property
    def distance(self) -> Tensor | None:
        """[slice, query, key]: how many places key j stands after the position of query i (negative: before it); None
        where order is unknown."""
        if self.known is not None and self._rows is self.known._rows:
            return self.known.distance
        if not self._lines_up or self.is_self is not True or self.queries.shape[0] != self.keys.shape[0]:
            return None
        own = (self.queries[:, :, None] == self.keys[:, None, :]) & (self.queries >= 0)[:, :, None]
        if not own.any(dim=-1).all() or self.scrambled_split:
            return None
        place = own.long().argmax(dim=-1)
        return torch.arange(self.keys.shape[1]) - place[:, :, None]

    @cached_property
    def later(self) -> Tensor | None:
        """[slice, query, key]: whether key j stands after the position of query i; None where order is unknown."""
        return None if self.distance is None else self.distance > 0

    @property
    def causal(self) -> bool | None:
        """Whether no query depends on a later key; None where order is unknown, or where there is none."""
        if self.later is None or not self.later.any() or self.slices is None:
            return None
        return not (self.slices & self.later).any()

    @cached_property
    def scrambled_split(self) -> tuple[str, str] | None:
        """("query", what is wrong) where the split into heads mixes positions or heads."""
        if self.over_channels or self.over_heads:
            return None
        parts = (
            ("query", self.query_origin, self.trace.query),
            ("key", self.key_origin, self.trace.key),
            ("value", self.value_origin, self.trace.value),
        )
        for name, source, operand in parts:
            path = self.trace.flow.between(source.rows.value, operand)
            if any(op.name not in KEEPS_ROWS for op in path):
                continue
            sources = _named(self._rows[name], source)
            if (sources == SEVERAL).any() and any(op.name in NORM or op.name == "mean" for op in path):
                continue  # a norm over positions mixes them on purpose
            if (sources == SEVERAL).all() and self._is_picture(source):
                continue
            wrong = _scrambled(sources)
            if wrong and (name != "query" or (sources == SEVERAL).any() or not self._folds_heads):
                return name, wrong
        return None

    def _is_picture(self, source: Origin) -> bool:
        """Whether rows are read from a picture that nothing has projected: its last axis is no features."""
        tape = self.trace.flow.tape
        return tape.values[source.rows.value].dim() > 3 and source.rows.value in tape.inputs().values()

    @property
    def _folds_heads(self) -> bool:
        """Multi-query attention may lay all heads of one position out as rows of one slice, for queries only: each
        slice then holds the queries of a whole sample, as it holds its keys, or those of a single position."""
        slices = [{tuple(row) for row in rows.tolist()} for rows in (self.queries, self.keys)]
        mixes = bool((self.queries != self.queries[:, :1]).any()) or not self._shares_keys
        cut = _has_repeats(self.queries) and len(slices[0]) > len(slices[1]) and mixes
        return not _has_repeats(self.keys) and not cut

    @property
    def _shares_keys(self) -> bool:
        """Whether slices with keys of the same positions hold the same numbers, so that there is one head of keys."""
        key = stacked(self.trace.flow.tape.values[self.trace.key])
        first: dict[tuple[int, ...], Tensor] = {}
        return all(
            torch.equal(first.setdefault(tuple(held), numbers), numbers)
            for held, numbers in zip(self.keys.tolist(), key, strict=True)
            if min(held) >= 0
        )

    @cached_property
    def scrambled_merge(self) -> str:
        """What is wrong where one row of the merged heads takes from the contexts of several positions; "" where
        nothing is."""
        trace = self.trace
        if trace.merged is None or any(op.name not in KEEPS_ROWS for op in trace.merge) or (self.queries < 0).any():
            return ""
        tape = trace.flow.tape
        between = trace.flow.between(trace.context.output, trace.merged)
        if not trace.merge or any(_averages_rows(op, tape.values[op.inputs[0]]) for op in between):
            return ""
        if len(rows_of(tape, trace.context.output, self.features["value"])) != self.queries.numel():
            return ""
        mixed = [self._first_mixed(rows_of(tape, trace.merged, axis)) for axis in self._merged_features(trace.merged)]
        return "" if None in mixed else f"row {mixed[0]} of the merged heads takes from several positions"

    def _first_mixed(self, merged: Rows) -> int | None:
        """The first row of the merged heads that takes from the contexts of several positions."""
        context = rows_of(merged.tape, self.trace.context.output, self.features["value"])
        owners = self.owners.reshape(-1)
        moved = moved_labels(self.trace.flow, context, owners, [merged.value]).get(merged.value)
        if moved is None:
            groups = [torch.isin(owners, group).nonzero().flatten() for group in halves(int(owners.max()) + 1)]
            differences = self._differences((context,), groups, [merged.value])
            held = decoded(by_bit([merged.touched(one[merged.value]) for one in differences]))
        else:
            held = _common(moved.reshape(-1)[merged.elements], -1)
        return next(iter((held == SEVERAL).nonzero().flatten().tolist()), None)

    def _merged_features(self, value: int) -> list[int]:
        """The axes of the merged heads that may hold the features of one position: the one that the output projection
        reads; where there is none, those of the width of all heads (channels may come first), or else the last."""
        if self.trace.output is not None:
            return [feature_axis(self.trace.output)]
        values = self.trace.flow.tape.values
        heads = len(self.queries) // len({tuple(sorted(row)) for row in self.queries.tolist()})
        width = heads * stacked(values[self.trace.context.output]).shape[self.features["value"]]
        return [axis for axis, size in enumerate(values[value].shape) if size == width] or [-1]

    @cached_property
    def owners(self) -> Tensor:
        """The position that each context row belongs to. Where heads have rows of their own in the origin (a query
        pooled head by head), it is the place in the slice."""
        shared = len({tuple(row) for row in self.queries.tolist()}) < len(self.queries)
        if shared or _has_repeats(self.queries):
            numbered: Tensor = torch.unique(self.queries, return_inverse=True)[1]
            return numbered
        return torch.arange(self.queries.shape[1]).expand_as(self.queries)


def _averages_rows(op: Op, value: Tensor) -> bool:
    """Whether an operation takes a mean along another axis than the last: of positions, on purpose."""
    if op.name == "native_group_norm":
        return int(op.args[5]) > 1  # how many numbers of each channel it is taken over
    if op.name != "mean" or value.dim() == 0:
        return False
    axes = (op.args[1] if len(op.args) > 1 else None) or range(value.dim())
    return any(axis % value.dim() != value.dim() - 1 for axis in axes)


def halves(count: int) -> list[Tensor]:
    """For each bit of the numbers below ``count``: those without it and those with it, in turn."""
    numbers = torch.arange(count)
    bits = range(max(1, (count - 1).bit_length()))
    return [numbers[(numbers >> bit & 1) == wanted] for bit in bits for wanted in (0, 1)]


def _common(rows: Tensor, axis: int) -> Tensor:
    """The one number along an axis; `SEVERAL` where there are others."""
    least, most = rows.aminmax(dim=axis)
    return torch.where(least == most, least, SEVERAL)


def _named(rows: Tensor, source: Origin) -> Tensor:
    """Rows of an origin → the positions they are projected from; `NONE` and `SEVERAL` stay."""
    return torch.where(rows >= 0, source.positions[rows.clamp_min(0)], rows)


def _groups(keys: Tensor) -> list[Tensor]:
    """Rows of the key's origin that can be changed at once: those at one place in all slices, where slices share no
    others."""
    if _overlap(keys):
        return [torch.tensor([row]) for row in sorted(set(keys.flatten().tolist()) - {NONE})]
    columns = [sorted(set(column.tolist()) - {NONE}) for column in keys.t()]
    return [torch.tensor(rows) for rows in columns if rows]


def by_bit(touched: list[Tensor]) -> Tensor:
    """What `halves` changed, in their order → [bit, 0 or 1, ...]."""
    stacked_up = torch.stack(touched)
    return stacked_up.view(-1, 2, *stacked_up.shape[1:])


def decoded(touched: Tensor) -> Tensor:
    """[bit, 0 or 1, ...] → the one number whose changes were seen; `SEVERAL` where both halves of a bit were."""
    without, having = touched.unbind(dim=1)
    weights = (2 ** torch.arange(len(touched))).view(-1, *[1] * (without.dim() - 1))
    number = (having * weights).sum(dim=0)
    number = torch.where((without & having).any(dim=0), SEVERAL, number)
    return torch.where((without | having).any(dim=0), number, NONE)


def sample(groups: list[Tensor], numbers: int) -> list[Tensor]:
    """Groups to change, evenly spread, the first and last among them; the fewer, the more ``numbers`` each replay
    computes."""
    most = max(FEWEST_POSITIONS, min(MOST_POSITIONS, MOST_NUMBERS // max(1, numbers)))
    if len(groups) <= most:
        return groups
    chosen = torch.linspace(0, len(groups) - 1, most).round().long().tolist()
    return [groups[index] for index in chosen]


def _overlap(sources: Tensor) -> bool:
    """Whether two slices hold a common position without holding the same positions in the same order."""
    owner: dict[int, tuple[int, ...]] = {}
    for held in {tuple(row) for row in sources.tolist()}:
        for position in set(held) - {NONE}:
            if owner.setdefault(position, held) != held:
                return True
    return False


def _has_repeats(sources: Tensor) -> bool:
    ordered = sources.sort(dim=-1).values
    return bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any())


def _scrambled(sources: Tensor) -> str:
    """What is wrong with the rows that the slices of an operand come from; "" where nothing is.

    Heads of one sample must hold the same positions in the same order; samples share none.
    """
    if (sources == SEVERAL).any():
        slice_, row = (sources == SEVERAL).nonzero()[0].tolist()
        return f"row {row} of slice {slice_} holds numbers of several positions"
    lists = [tuple(row) for row in sources.tolist()]
    distinct = list(dict.fromkeys(lists))
    seen: dict[int, tuple[int, ...]] = {}
    for held in distinct:
        for position in set(held) - {NONE}:
            if position in seen:
                return f"one head holds positions {_brief(seen[position])}, another {_brief(held)}"
            seen[position] = held
    if _has_repeats(sources):
        held = next(row for row in lists if len(set(row)) < len(row))
        return f"one head holds positions {_brief(held)}"
    return ""


def _brief(positions: tuple[int, ...]) -> str:
    shown = ", ".join(str(position) for position in positions[:8])
    return f"{shown}, …" if len(positions) > 8 else shown
