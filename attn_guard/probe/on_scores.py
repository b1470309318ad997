"""The operations between the scores and the softmax, and what they bring to the scores."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.flow import SUM
from attn_guard.probe.masks import has_flags
from attn_guard.probe.tape import Op

_ADDING_PRODUCTS = frozenset({"addmm", "baddbmm"})


def on_scores(anatomy: Anatomy) -> Iterator[tuple[int, Op]]:
    """Each operation on the scores before the softmax, with the value that flows into it; the product first where it
    adds something itself."""
    trace = anatomy.trace
    incoming = trace.scores.output
    if trace.scores.name in _ADDING_PRODUCTS:
        yield trace.query, trace.scores
    outputs = {incoming}
    for op in trace.before:
        incoming = next((read for read in op.inputs if read in outputs), incoming)
        yield incoming, op
        outputs = set(op.outputs)


def cells_at(anatomy: Anatomy, op: Op, value: Tensor) -> Tensor | None:
    """What an operation on the scores made, or brought to them, as (slices, queries, keys); None where unclear."""
    before = anatomy.trace.before
    done = next((before[: place + 1] for place, other in enumerate(before) if other is op), before[:0])
    return anatomy.stacked(done, value)


def added_flags(anatomy: Anatomy) -> Iterator[Op]:
    """The operations that add flags, 0 and 1, to the scores as if they were numbers."""
    for incoming, op in on_scores(anatomy):
        adds = op.name in SUM or op.name in _ADDING_PRODUCTS
        if adds and any(has_flags(anatomy.trace.flow, other) for other in op.inputs if other != incoming):
            yield op
