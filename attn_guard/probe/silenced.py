"""Heads whose weights or context a constant of the code sets to zero: they are computed and add nothing.

What a caller, a buffer, a parameter or the content sets to zero is meant: pruned heads, gates, routers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from attn_guard.probe.flow import LAYOUT, Flow
from attn_guard.probe.influence import Influence
from attn_guard.probe.replay import Replay
from attn_guard.probe.sites import Trace
from attn_guard.probe.tape import Op, Tape
from attn_guard.probe.unread import Unread, heads_of

_MOVES = LAYOUT - {"overwrite", "copy_"}


def silenced_heads(trace: Trace, influence: Influence) -> Unread | None:
    """The heads of a sample that are set to zero, of all its heads; None where there are none, where samples differ, or
    where it is not a constant that does it."""
    if trace.merged is None or trace.sideways:
        return None
    for source, target, slices in (
        (trace.softmax.output, trace.weights, _zero_weights(trace, len(influence.queries))),
        (trace.context.output, trace.merged, _without_effect(trace, len(influence.queries))),
    ):
        op = _constant(trace.flow, source, target) if slices else None
        if op is not None:
            return heads_of(influence, slices, op)
    return None


def _zero_weights(trace: Trace, count: int) -> list[int]:
    """The slices all of whose weights are zero as they meet the value."""
    weights = trace.flow.tape.values[trace.weights]
    zero = weights.reshape(-1, *weights.shape[-2:]).flatten(1).eq(0).all(dim=1)
    return zero.nonzero().flatten().tolist() if len(zero) == count else []


def _without_effect(trace: Trace, count: int) -> list[int]:
    """The slices whose context has no influence on the merged heads, which hold zeros in its place."""
    tape = trace.flow.tape
    merged, context = tape.values[trace.merged or 0], tape.values[trace.context.output]
    slices = context.reshape(-1, *context.shape[-2:])
    if len(slices) != count or int((merged == 0).sum()) < slices[0].numel():
        return []
    replay = Replay(tape, [trace.context.output], [trace.merged or 0])
    found = []
    for number in range(count):
        changed = slices.clone()
        changed[number] += 1
        again = replay({trace.context.output: changed.view(context.shape)})[trace.merged or 0]
        if torch.equal(again, merged):
            found.append(number)
    return found


def _constant(flow: Flow, source: int, target: int) -> Op | None:
    """The first operation on the way that does more than move numbers; None where anything but constants has part in
    any of them."""
    tape, own = flow.tape, flow.tape.descendants([source])
    changing = [op for op in flow.between(source, target) if op.name not in _MOVES]
    outside = {read for op in changing for read in op.inputs if read not in own}
    return changing[0] if changing and all(_is_constant(tape, value) for value in outside) else None


def _is_constant(tape: Tape, value: int) -> bool:
    leaves: Sequence[str] = [tape.leaves[one] for one in tape.ancestors(value) if one in tape.leaves]
    return all(name.startswith("constant") for name in leaves)
