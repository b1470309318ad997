"""Attention without queries: logits of each position, whose softmax weighs the positions (pooling, gates)."""

from __future__ import annotations

from dataclasses import replace

from attn_guard.anatomy import StepKind
from attn_guard.lint.place import Place
from attn_guard.lint.record import Event, Trouble
from attn_guard.lint.values import Mask, Role, Tensor, Value


def masked(place: Place, logits: Tensor, mask: Mask) -> Tensor:
    """``logits * mask``: if a softmax comes next, what the mask hides has a logit of 0."""
    return replace(logits, zeroed=place.draft(StepKind.MASK, text=mask.name, fill=0.0))


def completed(place: Place, logits: Tensor) -> Tensor:
    """Something is added, or a fill. Where it is done on one side of a branch, the product was on that side, too:
    ``if mask is not None`` twice."""
    if logits.zeroed is None:
        return logits
    place.record.completed.add(logits.zeroed.node)
    return logits.changed(zeroed=None)


def weights(logits: Value) -> Tensor:
    """The softmax of logits that are no product of a query and a key."""
    return Tensor(Role.WEIGHTS, zeroed=logits.zeroed if isinstance(logits, Tensor) else None)


def weigh(place: Place, weights: Tensor) -> None:
    """The weights meet what they weigh."""
    if weights.zeroed is not None and weights.zeroed.node not in place.record.completed:
        place.record.note(Trouble.ZEROED_LOGITS, Event(weights.zeroed))
