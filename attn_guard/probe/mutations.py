"""Masks that a call changes: the caller's, and those that a module keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from attn_guard.probe.on_scores import on_scores
from attn_guard.probe.replay import Replay, ReplayError
from attn_guard.probe.tape import Op, same

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


@dataclass(frozen=True)
class Mutation:
    """A mask that an operation writes into. ``name`` is that of the argument, or of what the module keeps."""

    op: Op
    name: str
    of_caller: bool


def mutations(xray: XRay) -> Iterator[Mutation]:
    """Writes into masks that outlive the call, and that make a difference to the caller or to the next call."""
    names = {delivery.name for delivery in xray.handed.over}
    for seen, mask in ((xray, ""), *((delivery.seen, delivery.name) for delivery in xray.handed.over)):
        for leaf, op in _writes(seen):
            kind, _, name = seen.tape.leaves[leaf].partition(" ")
            if not _changes(seen, leaf, op, mask):
                continue
            if kind == "input" and (name in names or "mask" in name.split("_")):
                yield Mutation(op, name, of_caller=True)
            elif kind in {"buffer", "attribute"} and _depends_on_call(seen, op) and _is_read_back(seen, leaf):
                yield Mutation(op, name, of_caller=False)


def _writes(seen: XRay) -> Iterator[tuple[int, Op]]:
    """Values that were there before the call, with the first operation that writes into each, directly or by a view."""
    tape = seen.tape
    for op in tape.ops:
        written = op.inputs[:1] if op.name == "overwrite" else op.writes
        yield from ((value, op) for value in written if value in tape.leaves)


def _changes(seen: XRay, leaf: int, op: Op, mask: str) -> bool:
    """Whether a write leaves other numbers behind, with the mask of the call or with one that marks all or nothing."""
    tape = seen.tape
    if not same(tape.values[leaf], tape.values[op.output]).all():
        return True
    source = tape.inputs().get(mask)
    if source is None or source == leaf or op.output not in tape.descendants([source]):
        return False
    for marked in (torch.ones_like, torch.zeros_like):
        try:
            again = Replay(tape, [source], [op.output])({source: marked(tape.values[source])})
        except (ReplayError, RuntimeError):
            continue
        if not same(tape.values[leaf], again[op.output]).all():
            return True
    return False


def _depends_on_call(seen: XRay, op: Op) -> bool:
    tape = seen.tape
    return not tape.descendants(tape.inputs().values()).isdisjoint(op.inputs)


def _is_read_back(seen: XRay, leaf: int) -> bool:
    """Whether what a mask held before the call counts in what is brought to the scores after the write."""
    tape = seen.tape
    operands = {
        read
        for anatomy in seen.sites
        for incoming, op in on_scores(anatomy)
        for read in op.inputs
        if read != incoming and read not in anatomy.trace.flow.content
    }
    reached = sorted(operands & tape.descendants([leaf]))
    held = tape.values[leaf]
    other = ~held if held.dtype == torch.bool else 1 - held
    try:
        again = Replay(tape, [leaf], reached)({leaf: other})
    except (ReplayError, RuntimeError):
        return False
    return any(not same(again[value], tape.values[value]).all() for value in reached)
