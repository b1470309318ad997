"""Numbers that are too low for their dtype: fills that cannot be written, and masks whose sum is -inf."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attn_guard.findings import Location
from attn_guard.probe.flow import SELECTION, SUM, Flow
from attn_guard.probe.masks import BLOCKING
from attn_guard.probe.tape import Op

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay

_FILLS = SELECTION | {"full", "full_like", "scalar_tensor", "fill"}


@dataclass(frozen=True)
class Overflow:
    """Where a mask leaves the range of its ``dtype``. ``what`` says how; ``severe`` that the result is no number."""

    location: Location
    dtype: str
    what: str
    severe: bool


def overflows(xray: XRay) -> Iterator[Overflow]:
    for seen in (xray, *xray.handed.refused):
        failed = _unwritable(seen)
        if failed is not None:
            yield failed
    for seen in (xray, *(delivery.seen for delivery in xray.handed.over)):
        softmaxes = [anatomy.trace.softmax for anatomy in seen.sites]
        if not softmaxes:
            continue
        flow = seen.sites[0].trace.flow
        behind = frozenset().union(*(seen.tape.ancestors(op.inputs[0]) for op in softmaxes))
        severe = any(bool(seen.tape.values[op.output].isnan().any()) for op in softmaxes)
        for op in seen.tape.ops:
            if op.name in SUM and not behind.isdisjoint(op.outputs) and _sums_to_infinity(flow, op):
                dtype = str(seen.tape.values[op.output].dtype).removeprefix("torch.")
                yield Overflow(op.location, dtype, "two masks that are each finite add up to -inf", severe)


def _unwritable(xray: XRay) -> Overflow | None:
    """A fill that raised because the dtype does not go so far down."""
    op, failure = xray.tape.failed_op, xray.tape.failure
    if op is None or op.name not in _FILLS or "without overflow" not in str(failure):
        return None
    values = [xray.tape.values[read] for read in op.inputs if xray.tape.values[read].is_floating_point()]
    dtype = str(values[0].dtype).removeprefix("torch.") if values else "the dtype"
    return Overflow(op.location, dtype, f"the fill is lower than {dtype} can hold, and the line raises", True)


def _sums_to_infinity(flow: Flow, op: Op) -> bool:
    """Whether two masks, each of them finite and blocking, add up to -inf in a cell, and may do so in a whole row."""
    values = flow.tape.values
    result = values[op.output]
    parts = [values[read] for read in op.inputs]
    if len(parts) != 2 or not all(part.is_floating_point() for part in (*parts, result)):
        return False
    both = _blocks(parts[0]) & _blocks(parts[1])
    overflow = bool((both.expand(result.shape) & torch.isneginf(result)).any())
    return overflow and not any(_always_leaves_a_key(flow, read) for read in op.inputs)


def _always_leaves_a_key(flow: Flow, part: int) -> bool:
    """Whether a mask is made from positions alone, such as the triangle of a causal one, and no row of it is full."""
    fixed = set(range(len(flow.tape.values))) - flow.content
    from_inputs = flow.tape.behind(part, fixed).intersection(flow.tape.inputs().values())
    return not from_inputs and bool((~_blocks(flow.tape.values[part])).any(dim=-1).all())


def _blocks(part: Tensor) -> Tensor:
    return part.isfinite() & (part <= BLOCKING)
