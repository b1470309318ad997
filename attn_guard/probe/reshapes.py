"""Reshapes that stand where two axes should be swapped.

A reshape keeps the numbers in the order in which they lie. Where its result has the sizes of its input in another
order, or merges axes that are not neighbours, a permute was meant. Sizes can coincide, so that labels have the last
word: a right reshape leaves the coordinates along axes, a wrong one cuts through them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import prod

import torch
from torch import Tensor

from attn_guard.probe.blame import RESHAPES, along_axes
from attn_guard.probe.flow import Flow
from attn_guard.probe.replay import Replay
from attn_guard.probe.sites import Trace
from attn_guard.probe.tape import Op

Shape = tuple[int, ...]

_MOST_AXES = 6
# Steps along the axes of the labels; so far apart that no sum of some is a multiple of another.
_STEPS = (1, 104_729, 15_485_863, 982_451_653, 67_280_421_310, 4_398_042_316_799)


@dataclass(frozen=True)
class SwappingReshape:
    """The operation, and the shapes before and after it."""

    op: Op
    before: Shape
    after: Shape


def swapping_reshapes(flow: Flow, traces: list[Trace]) -> Iterator[SwappingReshape]:
    """Reshapes of what goes into an attention or comes out of it that cut through axes to get sizes in another order.

    Scores are left alone: positions relative to the query are often shifted by reading (Tq, Tk + 1) as (Tk + 1, Tq).
    """
    tape = flow.tape
    if not traces:
        return
    outward = tape.descendants([trace.context.output for trace in traces])
    inward: set[int] = set()
    scores: set[int] = set()
    for trace in traces:
        operands = tape.ancestors(trace.query) | tape.ancestors(trace.key)
        inward |= operands | tape.ancestors(trace.value)
        scores |= tape.ancestors(trace.weights) - operands - tape.ancestors(trace.value)
    for op in tape.ops:
        known = op.outputs[:1] and op.name in RESHAPES and op.output in flow.content and op.output not in scores
        if known and (op.output in inward or op.output in outward):
            before, after = (tuple(tape.values[value].shape) for value in (op.inputs[0], op.output))
            if reorders(before, after) and not along_axes(_moved(flow, op)):
                yield SwappingReshape(op, before, after)


def _moved(flow: Flow, op: Op) -> Tensor:
    """Labels that grow by a step of its own along each axis of an operation's input, as the operation arranges them."""
    shape = flow.tape.values[op.inputs[0]].shape
    labels = torch.zeros(shape, dtype=torch.int64)
    for axis, size in enumerate(shape):
        sizes = [1] * len(shape)
        sizes[axis] = size
        labels += (torch.arange(size) * _STEPS[axis % len(_STEPS)]).view(sizes)
    return Replay(flow.tape, [op.inputs[0]], [op.output])({op.inputs[0]: labels})[op.output]


def reorders(before: Shape, after: Shape) -> bool:
    """Whether one shape is the other with whole axes in another order, or with axes merged that are no neighbours.

    Not where the same sizes can also be had in order, and not where only features are cut or merged across another
    axis, which is a wrong split or merge of heads.
    """
    before, after = (tuple(size for size in shape if size != 1) for shape in (before, after))
    before, after = _whole_features(before, after), _whole_features(after, before)
    fine, coarse = (before, after) if len(before) >= len(after) else (after, before)
    if fine == coarse or len(fine) > _MOST_AXES or prod(fine) != prod(coarse):
        return False
    ways = list(_ways(fine, coarse, tuple(range(len(fine)))))
    in_order = any([axis for group in way for axis in group] == list(range(len(fine))) for way in ways)
    of_heads = any(way[-1][-1] - way[-1][0] >= len(way[-1]) for way in ways)
    return bool(ways) and not in_order and not of_heads


def _whole_features(shape: Shape, other: Shape) -> Shape:
    """A shape whose last two axes are the last one of the other, with these merged."""
    if len(shape) > 1 and other and shape[-1] != other[-1] == shape[-1] * shape[-2]:
        return (*shape[:-2], other[-1])
    return shape


def _ways(fine: Shape, coarse: Shape, left: Shape) -> Iterator[tuple[Shape, ...]]:
    """Every way to take the axes of the coarse shape as products of those of the fine one."""
    if not coarse:
        if not left:
            yield ()
        return
    for count in range(1, len(left) - len(coarse) + 2):
        for group in combinations(left, count):
            if prod(fine[axis] for axis in group) == coarse[0]:
                rest = tuple(axis for axis in left if axis not in group)
                yield from ((group, *way) for way in _ways(fine, coarse[1:], rest))
