"""Rotary angles: what their positions are counted along."""

from __future__ import annotations

from attn_guard.anatomy import StepKind
from attn_guard.lint import layout, names, positions
from attn_guard.lint import nodes as cst
from attn_guard.lint.place import Call
from attn_guard.lint.record import Event, Trouble
from attn_guard.lint.values import Scalar, Value


def arange(call: Call) -> Value:
    """``torch.arange``; notes one that counts heads in a function that turns by angles."""
    length = call.args[0] if len(call.args) == 1 else None
    if isinstance(length, Scalar) and layout.is_heads(length) and not _says_heads(call.place.node):
        text = call.place.region.text
        if "cos" in text and "sin" in text:
            call.place.record.note(Trouble.ANGLES_OVER_HEADS, Event(call.place.draft(StepKind.SPLIT)))
    return positions.arange(call)


def _says_heads(node: cst.CSTNode) -> bool:
    """Whether a call names the heads, so that it counts them on purpose."""
    if isinstance(node, cst.Name):
        return names.size_called(node.value) is not None
    return any(_says_heads(child) for child in node.children)
