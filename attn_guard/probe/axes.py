"""Which axis of the scores a softmax runs along, and which one the product with the value sums over.

Axes are moved and merged on the way, so that their numbers say little. What says it is where one column, one row or
one line of the scores arrives, or else, in a replay, a change of it: along the axis of the softmax, the j-th key
arrives at the j-th place only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from attn_guard.anatomy import Axis
from attn_guard.probe.entries import entries_of
from attn_guard.probe.replay import Replay
from attn_guard.probe.tape import Op, Tape, same

Cells = tuple[Any, ...]


class Line(StrEnum):
    """What is counted along an axis: the columns of the scores, their rows, or neither (heads or samples)."""

    COLUMNS = "columns"
    ROWS = "rows"
    NEITHER = "neither"


# The cells of the first and of the last of each, in scores (..., rows, columns).
_ENDS: Mapping[Line, tuple[Cells, Cells]] = {
    Line.COLUMNS: ((..., 0), (..., -1)),
    Line.ROWS: ((..., 0, slice(None)), (..., -1, slice(None))),
}


@dataclass(frozen=True)
class Axes:
    """``softmax`` and ``context``: what the softmax runs along and what the product with the value sums over (None:
    unknown)."""

    tape: Tape
    scores: Op
    weights: Op
    softmax: Line | None
    context: Line | None

    @classmethod
    def of(cls, tape: Tape, scores: Op, softmax: Op, contraction: tuple[int, int]) -> Axes:
        along = int(softmax.args[1])
        entering = softmax.inputs[0]
        line = _counted(tape, scores.output, entering, along)
        if line is None:
            line = Line.NEITHER if _is_across(tape, scores.output, entering, along) else None
        return cls(tape, scores, softmax, line, _summed(tape, scores, softmax, contraction, line))

    def are_those_of(self, other: Op) -> bool:
        """Whether another softmax over the weights runs along the same axis as the first."""
        return is_kept(self.tape, self.weights.output, int(self.weights.args[1]), other.inputs[0], int(other.args[1]))

    def counted_across(self, slices: Sequence[tuple[int, ...]]) -> Axis | None:
        """What is counted along the axis of a softmax that compares no keys; ``slices`` names the positions of each
        slice's queries: heads of one sample have the same."""
        shape = self.tape.values[self.scores.output].shape
        own = self._place(shape, 0, 0)
        if self._place(shape, 0, -1) != own:
            return Axis.QUERIES
        heads = [number for number, held in enumerate(slices) if held == slices[0]]
        samples = [number for number, held in enumerate(slices) if held != slices[0]]
        for axis, numbers in ((Axis.HEADS, heads[-1:]), (Axis.BATCH, samples[-1:])):
            if any(self._place(shape, number, 0) != own for number in numbers):
                return axis
        return None

    def _place(self, shape: torch.Size, number: int, row: int) -> frozenset[int]:
        """Where the keys of one row of one slice lie along the axis of the softmax."""
        leading = [int(place) for place in torch.unravel_index(torch.tensor(number), shape[:-2])] if shape[:-2] else []
        axis = int(self.weights.args[1])
        (places,) = _places(self.tape, self.scores.output, [(*leading, row)], self.weights.inputs[0], axis)
        return places


def _summed(tape: Tape, scores: Op, softmax: Op, contraction: tuple[int, int], line: Line | None) -> Line | None:
    """What the context product sums over, where the softmax runs along ``line``.

    Weights that are normalised once more on the way spread along their axis; unless another axis is clearly the one
    summed over, it is taken for that of the softmax where this runs along the columns.
    """
    operand, axis = contraction
    values = tape.values
    weights, along = softmax.output, int(softmax.args[1]) % values[softmax.output].dim()
    if is_kept(tape, weights, along, operand, axis):
        return line
    others = [other for other in range(values[weights].dim()) if other != along]
    summed = [other for other in others if is_kept(tape, weights, other, operand, axis)]
    if len(summed) != 1:
        return line if line is Line.COLUMNS and not summed else None
    return _counted(tape, scores.output, softmax.inputs[0], summed[0])


def is_kept(tape: Tape, source: int, along: int, target: int, axis: int) -> bool:
    """Whether the places along an axis of one value are those along an axis of another."""
    along %= tape.values[source].dim()
    size = tape.values[source].shape[along]
    if size != tape.values[target].shape[axis] or size < 2:
        return False
    if source == target:
        return along == axis % tape.values[target].dim()
    ends = [(*(slice(None),) * along, end) for end in (0, size - 1)]
    first, last = _places(tape, source, ends, target, axis)
    return len(first) <= 1 and len(last) <= 1 and first != last


def _counted(tape: Tape, scores: int, target: int, axis: int) -> Line | None:
    """Whether columns or rows of the scores are counted along an axis of a value computed from them."""
    shape = tape.values[scores].shape
    if scores == target and axis % len(shape) == len(shape) - 1:
        return Line.COLUMNS
    for line, size in ((Line.COLUMNS, shape[-1]), (Line.ROWS, shape[-2])):
        first, last = _places(tape, scores, _ENDS[line], target, axis)
        if len(first) <= 1 and len(last) <= 1 and (first != last or size == 1):
            return line
    return None


def _is_across(tape: Tape, scores: int, target: int, axis: int) -> bool:
    """Whether all keys of one query lie at one place of an axis: a softmax along it compares no keys."""
    ends = ((*(0,) * (tape.values[scores].dim() - 1),), (*(-1,) * (tape.values[scores].dim() - 1),))
    return all(len(places) == 1 for places in _places(tape, scores, ends, target, axis))


def _places(tape: Tape, source: int, lines: Sequence[Cells], target: int, axis: int) -> list[frozenset[int]]:
    """For each line of cells of ``source``, the places along an axis of ``target`` at which a change of it arrives."""
    entries = entries_of(tape, source, target)
    if entries is None:
        return [places_along(_moved(tape, source, cells, target), axis) for cells in lines]
    return [places_along(_marked(tape, source, cells).flatten()[entries], axis) for cells in lines]


def _marked(tape: Tape, source: int, cells: Cells) -> Tensor:
    """Some cells of ``source``, as flags."""
    flags = torch.zeros_like(tape.values[source], dtype=torch.bool)
    flags[cells] = True
    return flags


def _moved(tape: Tape, source: int, cells: Cells, target: int) -> Tensor:
    """Where ``target`` is another when some cells of ``source`` are."""
    changed = {**_largest(tape, source), source: tape.values[source].clone()}
    changed[source][cells] += 1.0
    arrived = Replay(tape, list(changed), [target])(changed)[target]
    return ~same(arrived, tape.values[target])


def _largest(tape: Tape, source: int) -> dict[int, Tensor]:
    """The row maxima taken after ``source``, as recorded: what is subtracted against overflow moves no place."""
    behind = tape.descendants([source])
    maxima = (op for op in tape.ops if op.name in ("amax", "max") and not behind.isdisjoint(op.inputs))
    return {value: tape.values[value] for op in maxima for value in op.outputs}


def places_along(cells: Tensor, axis: int) -> frozenset[int]:
    """The places along an axis that hold a True."""
    return frozenset(torch.nonzero(cells.movedim(axis, 0).reshape(cells.shape[axis], -1).any(dim=1)).flatten().tolist())
