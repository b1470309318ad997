"""Positions that ``torch.arange`` counts, and the triangles that comparing them draws."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import replace

from attn_guard.anatomy import StepKind
from attn_guard.lint import names
from attn_guard.lint import nodes as cst
from attn_guard.lint.masks import drawn
from attn_guard.lint.place import Call, Place, integer
from attn_guard.lint.values import UNKNOWN, Kind, Mask, Meaning, Positions, Scalar, Tensor, Triangle, Unknown, Value


def arange(call: Call) -> Value:
    """``torch.arange(length)``, or from 0 on; where it starts elsewhere, the positions are shifted by nobody knows."""
    numbers = call.args
    if len(numbers) == 1:
        return Positions(length=_scalar(numbers[0]))
    if len(numbers) == 2 and integer(numbers[0]) == 0:
        return Positions(length=_scalar(numbers[1]))
    return Positions(shift=None) if len(numbers) == 2 else UNKNOWN


def _scalar(value: Value) -> Scalar | None:
    return value if isinstance(value, Scalar) else None


def indexed(positions: Positions, slices: Many[cst.SubscriptElement]) -> Value:
    """``positions[:, None]`` and the like."""
    parts = [element.slice for element in slices]
    new = [isinstance(part, cst.Index) and _is_new_axis(part.value) for part in parts]
    old = [index for index, is_new in enumerate(new) if not is_new]
    if len(old) != 1 or positions.axes != 1:
        return UNKNOWN
    cut = parts[old[0]]
    if isinstance(cut, cst.Index) and not isinstance(cut.value, cst.Ellipsis):
        return UNKNOWN
    moved = replace(positions, shift=None) if isinstance(cut, cst.Slice) and cut.lower else positions
    return _placed(moved, len(parts) - 1 - old[0], len(parts))


def _is_new_axis(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"


def _placed(positions: Positions, after: int, axes: int) -> Value:
    """The positions with ``after`` axes of size 1 behind their own."""
    along = max(positions.row, positions.column)
    if after > 1 or (positions.row and positions.column):
        return UNKNOWN
    return replace(positions, row=along if after else 0, column=0 if after else along, axes=axes)


def unsqueezed(positions: Positions, axis: int | None) -> Value:
    if axis is None:
        return UNKNOWN
    at = axis if axis >= 0 else positions.axes + 1 + axis
    after = 1 if positions.row else 0
    return _placed(positions, after + (at > positions.axes - 1 - after), positions.axes + 1)


def viewed(positions: Positions, target: Many[Value]) -> Value:
    """``positions.view(-1, 1)``."""
    one = Scalar(1.0)
    own = [index for index, size in enumerate(target) if size != one]
    return _placed(positions, len(target) - 1 - own[0], len(target)) if len(own) == 1 else UNKNOWN


def add(left: Value, right: Value, sign: int) -> Value:
    """``left + right`` or ``left - right``, of which one is positions."""
    first, second = _form(left), _form(right)
    if first is None or second is None:
        return UNKNOWN
    known = first.shift is not None and second.shift is not None
    return Positions(
        first.row + sign * second.row,
        first.column + sign * second.column,
        first.shift + sign * second.shift if known and first.shift is not None and second.shift is not None else None,
        first.length if first.length == second.length else None,
        _is_square(first, second),
        max(first.axes, second.axes),
    )


def _form(value: Value) -> Positions | None:
    """A value as something that can be added to positions."""
    if isinstance(value, Positions):
        return value
    number = integer(value)
    if number is not None:
        return Positions(0, 0, number, axes=0)
    return Positions(0, 0, None, axes=0) if isinstance(value, Scalar | Unknown) else None


def _is_square(first: Positions, second: Positions) -> bool | None:
    if first.length is None or second.length is None:
        return first.square if second.axes == 0 else second.square if first.axes == 0 else None
    return first.length == second.length


_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compare(place: Place, left: Value, operator: str, right: Value) -> Value:
    """``left <operator> right``, of which one is positions: a triangle, or padding told by lengths."""
    if operator not in _FLIPPED:
        return UNKNOWN
    padding = _against_lengths(left, operator, right) or _against_lengths(right, _FLIPPED[operator], left)
    if padding:
        return padding
    distance = add(left, right, -1)
    if not isinstance(distance, Positions) or {distance.row, distance.column} != {1, -1}:
        return UNKNOWN
    if distance.shift is None:
        return Mask(causal=True, name="causal mask", flags=True, kind=Kind.BOOL)
    shift = distance.shift
    if distance.row == 1:  # i - j + shift against 0 is j - i - shift the other way round
        shift, operator = -shift, _FLIPPED[operator]
    diagonal = {"<": -1, ">": 1}.get(operator, 0) - shift
    triangle = Triangle(operator in (">", ">="), diagonal, distance.square)
    return drawn(triangle, place.draft(StepKind.MASK), Kind.BOOL)


def _against_lengths(positions: Value, operator: str, lengths: Value) -> Mask | None:
    """``arange(keys) < lengths[:, None]`` says which keys are no padding."""
    name = lengths.name if isinstance(lengths, Unknown | Tensor) else ""
    if not isinstance(positions, Positions) or positions.row or positions.shift != 0 or not names.is_lengths(name):
        return None
    meaning = {"<": Meaning.KEEPS, ">=": Meaning.BLOCKS}.get(operator)
    return Mask(meaning, name="padding", flags=True, kind=Kind.BOOL, padding=True, rank=2, per_sample=True)
