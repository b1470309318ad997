"""Which operation splits or merges the heads, and which one of several did it wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from attn_guard.probe.flow import Projection, moves_only
from attn_guard.probe.influence import Influence
from attn_guard.probe.origins import Origin
from attn_guard.probe.replay import Replay
from attn_guard.probe.sites import Trace
from attn_guard.probe.tape import Op

RESHAPES = frozenset("view _unsafe_view reshape _reshape_alias flatten unflatten".split())


def split_of(
    trace: Trace, source: Origin, projection: Projection | None, operand: int, *, scrambled: bool
) -> Op | None:
    """The operation that splits a projection's result into heads: the first that reshapes it, other than the
    projection's own line.

    Of a scrambled split, the first after which the positions no longer lie along axes.
    """
    own = projection.op.place if projection is not None else None
    path = trace.flow.chain(source.rows.value, operand)
    reshapes = [op for op in path if op.name in RESHAPES and op.place != own]
    if not reshapes or not scrambled or not moves_only(path):
        return reshapes[0] if reshapes else None
    labels = torch.empty(trace.flow.tape.values[source.rows.value].numel(), dtype=torch.long)
    labels[source.rows.elements] = source.positions[:, None]
    root = source.rows.value
    moved = Replay(trace.flow.tape, [root], [op.output for op in reshapes])(
        {root: labels.view(trace.flow.tape.values[root].shape)}
    )
    return next((op for op in reshapes if not along_axes(moved[op.output])), reshapes[0])


def merge_of(trace: Trace, influence: Influence, *, scrambled: bool) -> Op | None:
    """The operation that merges the heads: the last that reshapes before the output projection's own line.

    Of a scrambled merge, the first after which one row of features holds several positions.
    """
    own = trace.output.op.place if trace.output is not None else None
    reshapes = [op for op in trace.merge if op.name in RESHAPES and op.place not in (own, trace.context.place)]
    if not reshapes or not scrambled or trace.turned or not moves_only(trace.merge):
        return reshapes[-1] if reshapes else None
    tape = trace.flow.tape
    context = tape.values[trace.context.output]
    labels = influence.owners.reshape(context.shape[:-1])[..., None].expand(context.shape)
    moved = Replay(tape, [trace.context.output], [op.output for op in reshapes])(
        {trace.context.output: labels.contiguous()}
    )
    return next((op for op in reshapes if _mixes(moved[op.output])), reshapes[-1])


def along_axes(labels: Tensor) -> bool:
    """Whether each axis moves the labels by steps of its own, whatever the place along the others."""
    corner = labels[(0,) * labels.dim()]
    total = corner
    for axis in range(labels.dim()):
        place: list[int | slice] = [0] * labels.dim()
        place[axis] = slice(None)
        shape = [1] * labels.dim()
        shape[axis] = labels.shape[axis]
        total = total + (labels[tuple(place)] - corner).view(shape)
    return bool((total == labels).all())


def _mixes(labels: Tensor) -> bool:
    return bool((labels != labels[..., :1]).any())
