"""A softmax that is written out as exponentials and their sum."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attn_guard.anatomy import Stage, StepKind
from attn_guard.lint.values import Draft, Role, Tensor, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attn_guard.lint.place import Call, Place
    from attn_guard.lint.record import Record

_HOLDS_BACK = re.compile(r"(?<!soft)(?<!Soft)max|clamp|clip|min\(|tanh|sigmoid|norm\w*\(", re.IGNORECASE)


def raised(call: Call, scores: Tensor) -> Tensor:
    """``exp`` of scores, which is remembered where nothing can have been taken off them or holds them back."""
    shifted = any(step.kind is StepKind.BIAS and step.stage is Stage.SCORES for step in scores.steps)
    if scores.opaque or scores.bounded or shifted or _HOLDS_BACK.search(call.place.region.text):
        return scores
    return scores.after(raised=call.place.draft(StepKind.SOFTMAX))


def note_sum(place: Place, value: Value) -> None:
    """Exponentials are summed."""
    if isinstance(value, Tensor) and value.raised and value.core:
        place.record.summed.setdefault(value.core.node, place.draft(StepKind.NORM))


def note_context(place: Place, weights: Tensor, value: Tensor) -> None:
    """Exponentials meet what may be the value."""
    if weights.raised and weights.core and value.role is Role.ACTIVATION:
        place.record.met.setdefault(weights.core.node, weights.raised)


def unsafe(record: Record) -> Iterator[tuple[Draft, Draft]]:
    """(the exponential, its sum) where the exponentials of the same scores are summed and meet the value."""
    yield from ((raised, record.summed[core]) for core, raised in record.met.items() if core in record.summed)
