"""Reads the strings of ``einsum`` and einops ``rearrange``."""

from __future__ import annotations

import re
from collections.abc import Sequence as Many
from dataclasses import replace

from attn_guard.anatomy import Size, Stage, StepKind
from attn_guard.lint import arithmetic, attended_axes, grid, layout, masks, written_softmax
from attn_guard.lint.arithmetic import as_mask, as_tensor
from attn_guard.lint.einsum_letters import LostLetter, letters, lost_letters, told
from attn_guard.lint.moved_axes import joined_axis
from attn_guard.lint.place import Call
from attn_guard.lint.record import Event, Trouble
from attn_guard.lint.values import UNKNOWN, Atom, Axes, Role, Scalar, Sequence, Tensor, Text, Value

_GROUP = re.compile(r"\(([^)]*)\)|(\S+)")


def einsum(call: Call) -> Value:
    """A product of two tensors by their letters; more or fewer operands are not followed."""
    equation = call.arg(0, "equation")
    given = call.args[1:]
    if len(given) == 1 and isinstance(given[0], Sequence):
        given = given[0].items
    if not isinstance(equation, Text) and len(call.args) == 3 and isinstance(call.args[2], Text):
        equation, given = call.args[2], call.args[:2]  # einops.einsum takes the string last
    if not isinstance(equation, Text):
        return UNKNOWN
    lost = [letter for letter in lost_letters(equation.text) if _is_certain(letter, given)]
    if lost:
        call.place.record.note(Trouble.LOST_LETTER, Event(call.place.draft(StepKind.SCORES), told(lost)))
    names = letters(equation.text)
    if len(given) != 2 or call.spread:
        return UNKNOWN
    left, right = (as_tensor(value) for value in given)
    if len(names) != 3 or equation.text.count("->") != 1 or left is None or right is None:
        return UNKNOWN
    return _product(call, left, right, names)


def _is_certain(lost: LostLetter, operands: Many[Value]) -> bool:
    """Whether there is something to lose: an axis of a tensor of which nothing is known may have one column, which a
    sum leaves as it is."""
    if lost.twice or lost.shared:
        return True
    operand = operands[lost.operand] if lost.operand < len(operands) else UNKNOWN
    if not isinstance(operand, Tensor):
        return False
    axes = operand.axes or ()
    if -len(axes) <= lost.axis < len(axes):
        return axes[lost.axis] != Scalar(1.0)
    return operand.grid is not None and operand.grid.at(lost.axis) is not None


def _product(call: Call, left: Tensor, right: Tensor, letters: list[list[str]]) -> Value:
    axes = _axes(left, right, letters)
    summed = set(letters[0]) & set(letters[1]) - set(letters[2])
    if not summed:
        return UNKNOWN
    for weights, value, own in ((left, right, letters[0]), (right, left, letters[1])):
        if weights.role is Role.WEIGHTS:
            weights = replace(weights, grid=grid.summed_letters(weights.grid, own, summed))
            return replace(arithmetic.attend(call.place, weights, value, axes), order=None)
        written_softmax.note_context(call.place, weights, value)
    if Role.PARAMETER in (left.role, right.role):
        return arithmetic.project(call.place, None, None).shaped(axes, None)
    if left.role is Role.ACTIVATION and right.role is Role.ACTIVATION:
        attended_axes.over_heads(call.place, left, (axes or ())[-2:-1], (axes or ())[-1:])
        scores = arithmetic.score(call.place, left, right, axes)
        return replace(scores, order=None, grid=grid.of_letters(left, right, letters))
    return UNKNOWN


def _axes(left: Tensor, right: Tensor, letters: list[list[str]]) -> Axes | None:
    sizes: dict[str, Scalar | None] = {}
    for tensor, names in ((right, letters[1]), (left, letters[0])):
        if tensor.axes is None or len(tensor.axes) != len(names) or "." in names:
            return None
        sizes.update(zip(names, tensor.axes, strict=True))
    return tuple(sizes.get(letter) for letter in letters[2])


def rearrange(call: Call) -> Value:
    """einops: never scrambles, since every axis has its name on both sides."""
    value, pattern = call.arg(0, "tensor"), call.arg(1, "pattern")
    if isinstance(value, Sequence):
        return replace(value, items=tuple(_rearranged(call, item, pattern) for item in value.items))
    return _rearranged(call, value, pattern)


def _rearranged(call: Call, value: Value, pattern: Value) -> Value:
    if not isinstance(pattern, Text) or "->" not in pattern.text:
        return value.shaped(None, None) if isinstance(value, Tensor) else value
    source, target = (_groups(side) for side in pattern.text.split("->")[:2])
    if mask := as_mask(value):
        return masks.rearranged(mask, source, target)
    value = as_tensor(value) or value
    if not isinstance(value, Tensor):
        return value
    sizes = _sizes(call, value, source, target[-1] if target else [])
    axes = None if any("..." in group for group in target) else tuple(_size(group, sizes) for group in target)
    result = replace(value.shaped(axes, None), last=_size(target[-1], sizes) if target else None)
    split = [group for group in source if len(group) > 1]
    if value.role is Role.CONTEXT:
        call.place.record.add(value, call.place.draft(StepKind.MERGE, stage=Stage.CONTEXT))
    elif value.role is Role.ACTIVATION and any(_is_heads(sizes.get(name), name) for group in split for name in group):
        result = result.after(call.place.draft(StepKind.SPLIT))
    return result


def _groups(side: str) -> list[list[str]]:
    return [(group if group is not None else name).split() for group, name in _matches(side)]


def _matches(side: str) -> list[tuple[str | None, str]]:
    return [(found[1], found[2] or "") for found in _GROUP.finditer(side)]


def _sizes(call: Call, value: Tensor, source: list[list[str]], features: list[str]) -> dict[str, Scalar]:
    """Size of each letter: as given by keyword, as known from the tensor, or a size of its own."""
    sizes: dict[str, Scalar] = {}
    for name, given in call.kwargs.items():
        if isinstance(given, Scalar):
            is_heads = name in ("h", "heads") and features != [name] and not given.is_number
            sizes[name] = _called(name, Size.HEADS) if is_heads and given.size is None else _more_than_one(given, name)
    known = value.axes if value.axes and len(value.axes) == len(source) else None
    for index, group in enumerate(source):
        axis = known[index] if known else (value.last if index == len(source) - 1 else None)
        missing = [name for name in group if name not in sizes]
        if axis and len(missing) == 1:
            rest = axis
            for name in group:
                inverse = sizes[name].to_power(-1.0) if name in sizes else None
                rest = rest.times(inverse) if inverse else rest
            sizes[missing[0]] = _more_than_one(rest, missing[0])
        elif len(group) == 1 == len(missing) and missing[0].isidentifier():
            sizes[missing[0]] = Scalar(powers=((Atom(missing[0]), 1.0),))
    return sizes


def _more_than_one(size: Scalar, name: str) -> Scalar:
    """A factor of an axis is there because it is not 1: where it is the quotient of two sizes, these only have the same
    name."""
    return Scalar(powers=((Atom(name), 1.0),)) if size == Scalar(1.0) else size


def _size(group: list[str], sizes: dict[str, Scalar]) -> Scalar | None:
    return joined_axis(tuple(sizes.get(name, Scalar(float(name)) if name.isdigit() else None) for name in group))


def _is_heads(size: Scalar | None, name: str) -> bool:
    return layout.is_heads(size) or (name in ("h", "heads") and size is not None)


def _called(name: str, size: Size) -> Scalar:
    return Scalar(powers=((Atom(name, size), 1.0),))
