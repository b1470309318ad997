"""Rotary angles: what their positions are counted along."""

from __future__ import annotations

from attn_guard.anatomy import StepKind
from attn_guard.lint import layout, names, positions
from attn_guard.lint import nodes as cst
from attn_guard.lint.place import Call, Place
from attn_guard.lint.record import Event, Trouble
from attn_guard.lint.values import Scalar, Tensor, Unknown, Value


def arange(call: Call) -> Value:
    """``torch.arange``; notes one that counts heads in a function that turns by angles."""
    length = call.args[0] if len(call.args) == 1 else None
    if isinstance(length, Scalar) and layout.is_heads(length) and not _says_heads(call.place.node):
        text = call.place.region.text
        if "cos" in text and "sin" in text:
            note(call.place)
    return positions.arange(call)


def half_of_a_rotation(call: Call) -> Value:
    """``angles.cos()``: what angles are made of, such as a product of frequencies and positions, is none of scores."""
    return Unknown("cos")


def note(place: Place) -> None:
    """Notes where heads are counted. To blame is the call that hands them over in that place of a layout, if there is
    one; one function that several calls go through is blamed once."""
    counted = place.draft(StepKind.SPLIT)
    known = place.record.noted.get(Trouble.ANGLES_OVER_HEADS, ())
    if any(place.node in (event.draft.node, event.related and event.related.node) for event in known):
        return
    entered = place.record.calls[-1] if place.record.calls else None
    given = (*entered.args, *entered.kwargs.values()) if entered else ()
    brings = any(isinstance(value, Tensor) and any(map(layout.is_heads, value.axes or ())) for value in given)
    event = Event(counted)
    if entered and brings:
        event = Event(entered.place.draft(StepKind.SPLIT), related=counted, label="counted here")
    place.record.note(Trouble.ANGLES_OVER_HEADS, event)


def _says_heads(node: cst.CSTNode) -> bool:
    """Whether a call names the heads, so that it counts them on purpose."""
    return any(names.size_called(name.value) is not None for name in node.names())
