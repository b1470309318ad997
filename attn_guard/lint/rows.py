"""What is said of whole rows of scores: which have no key left, or how sure they are. It hides no single key."""

from __future__ import annotations

from dataclasses import replace

from attn_guard.anatomy import StepKind
from attn_guard.lint import masks
from attn_guard.lint import nodes as cst
from attn_guard.lint.place import Call, Place
from attn_guard.lint.record import mask_stage
from attn_guard.lint.values import MASKABLE, UNKNOWN, Filled, Flag, Mask, Scalar, Tensor, Unknown, Value


def reduced(call: Call) -> Value:
    """``keep.any(-1, keepdim=True)``, ``mask.sum(-1)``: one cell for each row."""
    value, axis = call.arg(0, "input"), call.integer(1, "dim", "axis")
    rank = len(value.axes or ()) if isinstance(value, Tensor) else value.rank if isinstance(value, Mask) else None
    is_of_keys = not isinstance(value, Tensor) or value.role in MASKABLE
    if not is_of_keys or axis is None or axis not in (-1, 3, (rank or 0) - 1):
        return UNKNOWN
    return Unknown(rows=call.arg(2, "keepdim") == Flag(True))


def speaks(value: Value) -> bool:
    """Whether a value has one column for all keys."""
    return isinstance(value, Unknown) and value.rows is True


def alike(*values: Value) -> Value:
    """What an operation makes of such values, and of numbers."""
    found = {value.rows for value in values if isinstance(value, Unknown) and value.rows is not None}
    others = all(isinstance(value, Unknown | Scalar | Filled) for value in values)
    return Unknown(rows=found.pop()) if len(found) == 1 and others else UNKNOWN


def widened(value: Value, axis: int | None) -> Value:
    """``empty.unsqueeze(axis)``"""
    if isinstance(value, Unknown) and value.rows is False and axis in (-1, 3):
        return replace(value, rows=True)
    return value


def adds_column(node: cst.Subscript) -> bool:
    """``empty[..., None]``, ``empty[:, None, :, None]``: (batch, keys)[:, None, None] is a row for each sample."""
    cuts = [element.slice for element in node.slice]
    values = [cut.value if isinstance(cut, cst.Index) else None for cut in cuts]
    is_new = isinstance(values[-1], cst.Name) and values[-1].value == "None"
    return is_new and (len(cuts) >= 4 or any(isinstance(value, cst.Ellipsis) for value in values))


def are_filled(value: Tensor, where: Value, fill: float | None) -> bool:
    """Whether scores or weights are given a number in whole rows that ``where`` says, and not so as to block all."""
    is_weak = fill is None or fill > masks.STRONG_FILL
    return is_weak and value.role in MASKABLE and isinstance(where, Unknown) and where.rows is not None


def filled(place: Place, value: Tensor, fill: float | None) -> Tensor:
    """Scores or weights of which some rows are given a number."""
    return value.after(place.draft(StepKind.ROWS, stage=mask_stage(value), fill=fill), zeroed=None)


def missing(call: Call) -> Value:
    """``isnan`` of scores or weights: a softmax makes NaN of a whole row."""
    value = call.arg(0, "input")
    return Unknown(rows=True) if isinstance(value, Tensor) and value.role in MASKABLE else UNKNOWN
