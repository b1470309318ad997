"""Where the rows that an attention works on come from in the input, and where what it makes of them comes out.

A layer that cuts its input into windows, or lays out an image as a sequence, has to put the pieces back where they
were. Both ways are measured, row by row; between them the rows of the projections keep their order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.blame import RESHAPES
from attn_guard.probe.flow import LAYOUT
from attn_guard.probe.influence import by_bit, decoded, halves
from attn_guard.probe.origins import Rows, feature_axis, rows_of
from attn_guard.probe.replay import Replay
from attn_guard.probe.tape import Op, Tape, same


@dataclass(frozen=True)
class Misplaced:
    """What is made of position ``origin`` comes out at position ``place``; ``op`` is the reshape to blame."""

    op: Op
    origin: int
    place: int


def misplaced(anatomy: Anatomy, seed: int = 0) -> Misplaced | None:
    """None where everything comes out where it came from, where no reshape is to blame for the rest, and where the two
    ways are not those of single rows."""
    trace = anatomy.trace
    projection, output, tape = trace.query_projection, trace.output, trace.flow.tape
    if projection is None or output is None or anatomy.influence.is_self is not True:
        return None
    last = rows_of(tape, output.op.output, feature_axis(output))
    for source in (value for value in tape.inputs().values() if value in tape.ancestors(projection.activation)):
        shape = tape.values[source].shape
        result = next((result for result in tape.results() if tape.values[result].shape == shape), None)
        if result is None or len(shape) < 3:
            continue
        op = _idle_cut(tape, source, projection.activation) or _idle_cut(tape, output.op.output, result)
        if op is None:
            continue
        for axis in (-1, 1):
            first = rows_of(tape, source, axis)
            target = rows_of(tape, projection.activation, feature_axis(projection))
            came = _rows_from(first, target, seed)
            if came is None or len(target) != len(last) or not _permutes(came, len(first)):
                continue
            went = _rows_from(last, rows_of(tape, result, axis), seed)
            if went is None or not _permutes(went, len(last)):
                continue
            wrong = (came[went] != torch.arange(len(first))).nonzero().flatten()
            if len(wrong):
                return Misplaced(op, int(came[went][wrong[0]]), int(wrong[0]))
    return None


def _rows_from(source: Rows, target: Rows, seed: int) -> Tensor | None:
    """For each row of a value, the row of another that it depends on; None where that is not one for each."""
    if source.value == target.value:
        return torch.arange(len(source)) if torch.equal(source.elements, target.elements) else None
    replay = Replay(source.tape, [source.value], [target.value])
    generator = torch.Generator().manual_seed(seed)
    base = replay({source.value: source.tape.values[source.value].clone()})[target.value]
    bits = []
    for group in halves(len(source)):
        again = replay({source.value: source.changed(group, generator)})[target.value]
        bits.append(target.touched(~same(again, base).cpu()))
    found = decoded(by_bit(bits))
    return found if bool((found >= 0).all()) else None


def _permutes(rows: Tensor, count: int) -> bool:
    return len(rows) == count and torch.equal(rows.sort().values, torch.arange(count))


def _idle_cut(tape: Tape, source: int, target: int) -> Op | None:
    """A reshape that merges what the reshape right before it has cut, in another way and with no axes swapped between:
    the swap is missing."""
    between = tape.descendants([source]) & tape.ancestors(target)
    for op in tape.ops:
        if op.name not in RESHAPES or op.output not in between:
            continue
        cut = tape.maker(op.inputs[0])
        while cut is not None and cut.name in LAYOUT - RESHAPES and _keeps_shape(tape, cut):
            cut = tape.maker(cut.inputs[0])
        if cut is None or cut.name not in RESHAPES:
            continue
        before, parts, after = (tape.values[value].dim() for value in (cut.inputs[0], cut.output, op.output))
        if parts > max(before, after) and tape.values[cut.inputs[0]].shape != tape.values[op.output].shape:
            return op
    return None


def _keeps_shape(tape: Tape, op: Op) -> bool:
    return op.name in {"clone", "contiguous", "_to_copy", "alias", "detach"} and bool(op.inputs)
