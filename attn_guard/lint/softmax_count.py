"""A softmax too many, or one that is missing between the scores and the value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_guard.anatomy import Stage, StepKind
from attn_guard.lint.record import Event, Record, Trouble, softmax_of
from attn_guard.lint.values import Draft, Role, Tensor

if TYPE_CHECKING:
    from attn_guard.lint.place import Place

_HARMLESS = (StepKind.DROPOUT, StepKind.MASK, StepKind.ROWS)
_STRONG_FILL = -1e3


def is_second(weights: Tensor, axis: int | None) -> bool:
    """Whether a softmax along an axis repeats the one that made these weights.

    A logarithm, a temperature or a choice of the largest in between makes it another thing.
    """
    first, grid = softmax_of(weights), weights.grid
    if weights.role is not Role.WEIGHTS or first is None or grid is None or grid.over is None:
        return False
    after = weights.steps[weights.steps.index(first) + 1 :]
    return grid.at(axis) is grid.over and all(step.kind in _HARMLESS for step in after)


def note_second(place: Place, weights: Tensor) -> None:
    event = Event(place.draft(StepKind.SOFTMAX), related=softmax_of(weights), label="the first softmax")
    place.record.note(Trouble.SECOND_SOFTMAX, event)


def note_unused(softmax: Draft, record: Record) -> None:
    """``F.softmax(scores, dim=-1)`` as a statement."""
    record.note(Trouble.UNUSED_SOFTMAX, Event(softmax))


def note_missing(place: Place, scores: Tensor) -> None:
    """Masked scores meet the value: only a softmax makes nothing out of -inf."""
    masks = [step for step in scores.steps if step.kind is StepKind.MASK and step.stage is Stage.SCORES]
    strong = [mask for mask in masks if mask.fill is not None and mask.fill <= _STRONG_FILL]
    if strong and not scores.opaque and not scores.bounded:
        event = Event(place.draft(StepKind.CONTEXT), related=strong[-1], label="blocked scores are this large")
        place.record.note(Trouble.NO_SOFTMAX, event)
