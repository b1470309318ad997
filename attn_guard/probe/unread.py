"""What is computed and never read: columns of a projection, columns of a head's context.

Labels are moved through the operations that only move data; what reaches any other operation, or the result, is read.
So nothing is ever said about a column that is read and multiplied by a zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attn_guard.probe.flow import LAYOUT, Flow, Projection, stacked
from attn_guard.probe.influence import Influence
from attn_guard.probe.origins import feature_axis
from attn_guard.probe.replay import Replay
from attn_guard.probe.sites import Trace
from attn_guard.probe.tape import Op

# These may change the numbers, or keep them where they live on.
_MOVES = LAYOUT - {"_to_copy", "copy_", "overwrite", "im2col"}


@dataclass(frozen=True)
class Unread:
    """Columns that nothing reads, of how many there are, and the operation that leaves them out.

    ``parts`` is how many of query, key and value the columns are for.
    """

    count: int
    width: int
    op: Op
    parts: int = 1


def unread_columns(trace: Trace) -> Iterator[Unread]:
    """Of each projection to query, key or value: its columns that nothing reads, if any."""
    three = (trace.query_projection, trace.key_projection, trace.value_projection)
    projections = [part for part in three if part is not None]
    for projection in {part.op.index: part for part in projections}.values():
        value, axis = _with_bias(trace.flow, projection)
        shape = trace.flow.tape.values[value].shape
        found = _unread(trace.flow, value, _along(shape, axis))
        if found is not None:
            labels, op = found
            yield Unread(len(labels), shape[axis], op, projections.count(projection))


def unread_heads(trace: Trace, influence: Influence) -> Unread | None:
    """The heads of a sample whose context nothing reads, of all its heads; None where there are none, or where samples
    differ."""
    context = trace.context.output
    shape = trace.flow.tape.values[context].shape
    if len(shape) < 2 or stacked(trace.flow.tape.values[context]).shape[0] != len(influence.queries):
        return None
    found = _unread(trace.flow, context, _along((len(influence.queries), *shape[-2:]), 0).view(shape))
    if found is None:
        return None
    return heads_of(influence, *found)


def heads_of(influence: Influence, slices: list[int], op: Op) -> Unread | None:
    """These slices as heads of a sample; None where samples differ, or where it is all heads."""
    samples = [tuple(sorted(row)) for row in influence.queries.tolist()]
    dead = [samples[number] for number in slices]
    lost = {(samples.count(sample), dead.count(sample)) for sample in samples}
    heads, count = lost.pop()
    return Unread(count, heads, op) if not lost and count < heads else None


def _along(shape: tuple[int, ...], axis: int) -> Tensor:
    """Labels that number an axis, with a half added: no number that a mask or an index holds."""
    sizes = [1] * len(shape)
    sizes[axis] = shape[axis]
    return (torch.arange(shape[axis], dtype=torch.float64) + 0.5).view(sizes).expand(shape).contiguous()


def _unread(flow: Flow, value: int, labels: Tensor) -> tuple[list[int], Op] | None:
    """The numbers of the labels that reach no reader, and the operation that leaves the first of them out."""
    moved, read = _readers(flow, value)
    if value in read:
        return None
    found = Replay(flow.tape, [value], sorted(moved))({value: labels})
    seen = [found[target].flatten().double() for target in read]
    wanted: Tensor = torch.unique(labels)
    lost = wanted[~torch.isin(wanted, torch.cat(seen))] if seen else wanted[:0]
    if not len(lost):
        return None
    last = max(target for target in moved if bool((found[target] == lost[0]).any()))
    op = next(flow.tape.consumers(last), None) or flow.tape.maker(last)
    return None if op is None else ([int(label) for label in lost], op)


def _readers(flow: Flow, value: int) -> tuple[set[int], set[int]]:
    """(every value that is the value moved, those of them that something reads or that are returned)."""
    tape = flow.tape
    moved, pending, read = {value}, [value], set(tape.results())
    while pending:
        current = pending.pop()
        for op in tape.consumers(current):
            if op.name not in _MOVES or op.writes:
                read.add(current)
            else:
                pending.extend(set(op.outputs) - moved)
                moved.update(op.outputs)
    return moved, read & moved


def _with_bias(flow: Flow, projection: Projection) -> tuple[int, int]:
    """A projection's result after its bias, where an operation of its own adds that, and the axis of its columns."""
    values = flow.tape.values
    value, axis = projection.op.output, feature_axis(projection)
    while axis == -1 and len(readers := list(flow.tape.consumers(value))) == 1:
        (op,) = readers
        adds_bias = op.name in {"add", "add_"} and any(read in flow.learned for read in op.inputs)
        if not (adds_bias or op.name in {"view", "_unsafe_view"}):
            break
        if values[op.output].shape[-1] != values[value].shape[-1]:
            break
        value = op.output
    return value, axis % values[value].dim()
