"""Causal attention by running sums: keys meet values position by position, are summed along time, and meet the query
last (Katharopoulos et al. 2020, section 3.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attn_guard.probe.flow import LAYOUT, Flow, operands
from attn_guard.probe.sites import Trace
from attn_guard.probe.softmax import NO_SOFTMAX, Softmax
from attn_guard.probe.tape import Op, Ref


def running_traces(flow: Flow) -> Iterator[Trace]:
    """A trace for each running sum of key-value products that meets a query: its scores are where keys meet values."""
    for total in flow.tape.ops:
        meeting = _meeting(flow, total) if total.name == "cumsum" else None
        context = None if meeting is None else _context(flow, total)
        if meeting is None or context is None:
            continue
        op, sums, query = context
        nothing = replace(total, name=NO_SOFTMAX, args=(Ref(sums), -1), inputs=(sums,), outputs=(sums,), writes=())
        yield Trace(flow, meeting, Softmax(nothing), op, sums, query)


def _meeting(flow: Flow, total: Op) -> Op | None:
    """The outer products of content with content that are summed up."""
    op = flow.tape.maker(total.inputs[0])
    while op is not None and op.name in LAYOUT and op.inputs:
        op = flow.tape.maker(op.inputs[0])
    if op is None or len(op.inputs) != 2 or not flow.content.issuperset(op.inputs):
        return None
    values = flow.tape.values
    if op.name == "mul":
        is_outer = values[op.output].numel() > max(values[read].numel() for read in op.inputs)
    else:
        is_outer = flow.product(op) is not None and values[operands(op)[0]].shape[-1] == 1
    return op if is_outer else None


def _context(flow: Flow, total: Op) -> tuple[Op, int, int] | None:
    """The product of the sums with a query: the operation, the sums and the query."""
    moved = {total.output}
    for op in flow.tape.ops[total.index + 1 :]:
        product = flow.product(op)
        if product is not None and len(moved.intersection(product)) == 1:
            left, right = product
            return (op, left, right) if left in moved else (op, right, left)
        if op.name in LAYOUT and not moved.isdisjoint(op.inputs):
            moved.update(op.outputs)
    return None
