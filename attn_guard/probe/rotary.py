"""Rotary positions on a tape: which products turn query, key or value, by which angles, along which axes.

A turn multiplies numbers by the cosine and the sine of an angle (Su et al. 2021), or by a complex number of constant
modulus. What tells it from any other product is that the squares of both factors add up to one constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attn_guard.probe.alignment import Alignment
from attn_guard.probe.flow import MATMUL
from attn_guard.probe.influence import Influence
from attn_guard.probe.origins import Origin
from attn_guard.probe.replay import Replay
from attn_guard.probe.tape import Op, Tape

_MULTIPLIES = frozenset({"mul", "mul_"})
CLOSE = 1e-3


@dataclass(frozen=True)
class Turn:
    """Query, key or value times the cosine and the sine of angles: the last of these products, the value it turns
    and both factors, of the turned value's shape."""

    op: Op
    turned: int
    cos: Tensor
    sin: Tensor

    @property
    def axes(self) -> set[int]:
        """The axes along which the angle varies, the last (features) left out."""
        return {a for a in range(self.cos.dim() - 1) if _varies(self.cos, a) or _varies(self.sin, a)}

    def is_uniform(self, axis: int) -> bool:
        """Whether each feature turns on by the same angle from every place along an axis to the next."""
        number = torch.complex(self.cos.double(), self.sin.double()).movedim(axis, 0)
        step = number[1:] * number[:-1].conj()
        return bool(((step - step[:1]).abs() <= CLOSE * step.abs().max()).all())


@dataclass(frozen=True)
class Rotary:
    """The turns of one attention computation."""

    influence: Influence

    @cached_property
    def query(self) -> Turn | None:
        return self._turn(self.influence.query_origin, self.influence.trace.query)

    @cached_property
    def key(self) -> Turn | None:
        return self._turn(self.influence.key_origin, self.influence.trace.key)

    @cached_property
    def value(self) -> Turn | None:
        return self._turn(self.influence.value_origin, self.influence.trace.value)

    @cached_property
    def back(self) -> Turn | None:
        """The turn of the context on its way to the output projection."""
        trace = self.influence.trace
        return None if trace.merged is None else _turn_between(self._tape, trace.context.output, trace.merged)

    @property
    def _tape(self) -> Tape:
        return self.influence.trace.flow.tape

    def _turn(self, source: Origin, operand: int) -> Turn | None:
        return _turn_between(self._tape, source.rows.value, operand)

    def wrong_axis(self) -> tuple[Turn, str] | None:
        """A turn whose angle does not vary with the position but from head to head, or from sample to sample."""
        influence = self.influence
        parts = (
            (self.query, influence.query_origin, influence.queries),
            (self.key, influence.key_origin, influence.keys),
        )
        for turn, source, own in parts:
            if turn is None or not turn.axes or own.shape[1] < 2:
                continue
            place, sample = (self._at(turn, source, found) for found in influence.places(source, own))
            if place is None or sample is None:
                continue
            times = {axis for axis in range(place.dim() - 1) if _varies(place, axis)}
            if times and not times & turn.axes:
                batch = any(_varies(sample, axis) for axis in turn.axes)
                return turn, "samples of the batch" if batch else "heads"
        return None

    def _at(self, turn: Turn, source: Origin, of_row: Tensor) -> Tensor | None:
        """Something known of each row of an origin, for each number that is turned."""
        rows = self.influence.rows_at(source, turn.turned)
        return None if (rows < 0).any() else of_row[rows]

    @cached_property
    def spread_on_diagonals(self) -> float | None:
        """With the same query and the same key at every position: how far the scores of one distance lie apart, as a
        share of the largest score. None where that says nothing: other angles than multiples of one, no distances,
        operations that mix positions on the way."""
        influence, trace = self.influence, self.influence.trace
        turn = self.query or self.key
        if turn is None or influence.is_self is not True or trace.sideways or influence.scrambled_split:
            return None
        axes = turn.axes
        if len(axes) != 1 or not turn.is_uniform(next(iter(axes))):
            return None
        sources = {influence.query_origin.rows.value, influence.key_origin.rows.value}
        ways = [trace.flow.between(source, end) for source in sources for end in (trace.query, trace.key)]
        if any(op.name in MATMUL for way in ways for op in way) or not torch.equal(influence.queries, influence.keys):
            return None
        changed = {part.rows.value: _levelled(part) for part in (influence.query_origin, influence.key_origin)}
        scores = Replay(self._tape, list(changed), [trace.scores.output])(changed)[trace.scores.output]
        scores = scores.reshape(-1, *scores.shape[-2:]).double()
        if scores.shape[-1] < 3 or scores.shape[-1] != scores.shape[-2]:
            return None
        apart = (scores[:, 1:, 1:] - scores[:, :-1, :-1]).abs().max()
        return float(apart / scores.abs().max().clamp_min(1e-12))


def _levelled(source: Origin) -> Tensor:
    """The value of an origin with its first row in the place of every row."""
    value = source.rows.tape.values[source.rows.value]
    flat = value.detach().reshape(-1).clone()
    elements = source.rows.elements.to(flat.device)
    flat[elements] = flat[elements[0]].expand_as(elements)
    return torch.empty_like(value).copy_(flat.view(value.shape))


def _turn_between(tape: Tape, source: int, target: int) -> Turn | None:
    on_way = tape.descendants([source])
    behind = on_way & tape.ancestors(target)
    found: list[tuple[Op, int, Tensor]] = []
    for op in tape.ops:
        if op.name in _MULTIPLIES and not behind.isdisjoint(op.outputs):
            found.extend(_factors(tape, op, on_way))
    for op, turned, factor in found:
        if factor.is_complex() and _is_constant(factor.abs()):
            return Turn(op, turned, factor.real, factor.imag)
    for first, (_, turned, cos) in enumerate(found):
        for op, other, sin in found[first + 1 :]:
            if cos.is_complex() or sin.is_complex() or cos.shape != sin.shape:
                continue
            if tape.values[turned].shape == tape.values[other].shape and _is_turn(cos, sin):
                return Turn(op, turned, cos, sin)
    return None


def _factors(tape: Tape, op: Op, on_way: frozenset[int]) -> Iterator[tuple[Op, int, Tensor]]:
    """(operation, value that is multiplied, factor) of a product with something that does not come from the source."""
    inputs = [value for value in op.inputs if value in on_way]
    others = [value for value in op.inputs if value not in on_way]
    if len(inputs) == 1 and len(others) == 1:
        turned, factor = tape.values[inputs[0]], tape.values[others[0]]
        if factor.numel() > 1 and tape.values[op.output].shape == turned.shape:
            yield op, inputs[0], factor.detach().cpu().expand(turned.shape)


def _is_turn(cos: Tensor, sin: Tensor) -> bool:
    close = max(CLOSE, 4 * torch.finfo(cos.dtype).eps)  # tables are kept in bfloat16, too
    squares = cos.double() ** 2 + sin.double() ** 2
    return _is_constant(squares, close) and not (_is_constant(cos) and _is_constant(sin))


def _is_constant(value: Tensor, close: float = CLOSE) -> bool:
    first = value.reshape(-1)[0]
    return bool(first.isfinite() and first != 0 and ((value - first).abs() <= close * first.abs()).all())


def _varies(value: Tensor, axis: int) -> bool:
    return value.shape[axis] > 1 and bool((value != value.narrow(axis, 0, 1)).any())


def shifted(runs: Alignment) -> tuple[Op, int] | None:
    """(operation behind it, position) where a chunk, decoded with a cache, is turned by the angles of another position.

    That is so if the first operation on the content that differs from the full pass multiplies by a factor which the
    full pass has at another place than that of the chunk.
    """
    found = runs.first_difference
    if found is None or found[0].name not in _MULTIPLIES:
        return None
    op, root = found
    counterpart = runs.counterpart(op)
    pairs = zip(op.inputs, counterpart.inputs if counterpart else (), strict=False)
    for part, full in pairs:
        if runs.differs(part, full):
            place = _place_of(runs.part.values[part], runs.full.values[full], runs)
            return None if place is None else (root, place)
    return None


def _place_of(part: Tensor, full: Tensor, runs: Alignment) -> int | None:
    """Where along its positions the full pass has the factor of the part; None where it is nowhere."""
    length = runs.end - runs.start
    axes = [a for a, sizes in enumerate(zip(part.shape, full.shape, strict=False)) if sizes == (length, runs.total)]
    if part.dim() != full.dim() or len(axes) != 1:
        return None
    for place in range(runs.total - length + 1):
        there = full.narrow(axes[0], place, length)
        if there.shape == part.shape and torch.allclose(there, part, atol=CLOSE):
            return place
    return None
