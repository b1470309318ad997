"""Operations that give a tensor other axes: views, transposes, joined, split and inserted axes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from attn_guard.anatomy import Stage, StepKind
from attn_guard.lint import grid, grouping, layout, masks, positions, rows
from attn_guard.lint import nodes as cst
from attn_guard.lint.arithmetic import as_mask, as_tensor
from attn_guard.lint.attended_axes import text_of
from attn_guard.lint.moved_axes import joined_axis, moved_axis
from attn_guard.lint.place import Call, integer
from attn_guard.lint.record import Event, Trouble
from attn_guard.lint.values import (
    UNKNOWN,
    Atom,
    Axes,
    Mask,
    Positions,
    Role,
    Scalar,
    Sequence,
    Shape,
    Tensor,
    Unknown,
    Value,
)


def transpose(call: Call) -> Value:
    if len(call.args) > 3:  # all axes in their new order: an array of another library
        return UNKNOWN
    value = call.arg(0, "input")
    first, second = call.integer(1, "dim0", "axis0"), call.integer(2, "dim1", "axis1")
    if not isinstance(value, Tensor):
        return masks.transposed(value, first, second)
    moved = value.shaped(None, None)
    if first is not None and second is not None:
        moved = layout.transposed(value, first, second)
        if value.axes is None and {first, second} in ({1, 2}, {-1, -2}, {1, -1}, {2, -2}) and _is_flat_image(call):
            moved = moved.shaped((_BATCH, None, None), None)
    swapped = value.grid.swapped(first, second) if value.grid and first is not None and second is not None else None
    return moved.changed(transposed=call.place.draft(StepKind.SPLIT), grid=swapped)


_BATCH = Scalar(powers=((Atom("batch"), 1.0),))


def _is_flat_image(call: Call) -> bool:
    """Whether the receiver is written ``x.flatten(2)``: then x is (batch, channels, height, width)."""
    node = call.place.node
    inner = node.func.value if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) else None
    if not isinstance(inner, cst.Call) or not isinstance(inner.func, cst.Attribute) or len(inner.args) != 1:
        return False
    start = inner.args[0].value
    return inner.func.attr.value == "flatten" and isinstance(start, cst.Integer) and start.value == "2"


def transpose_last(call: Call) -> Value:
    value = call.arg(0)
    if not isinstance(value, Tensor):
        return masks.transposed(value, -2, -1)
    swapped = value.grid.swapped(-2, -1) if value.grid else None
    return layout.transposed(value, -2, -1).changed(transposed=call.place.draft(StepKind.SPLIT), grid=swapped)


def permute(call: Call) -> Value:
    value = call.arg(0, "input")
    if not isinstance(value, Tensor):
        return masks.moved(value)
    axes = [integer(axis) for axis in _items(call.args[1:] or (call.arg(1, "dims"),))]
    known = [axis for axis in axes if axis is not None]
    if len(known) != len(axes):
        return value.shaped(None, None).changed(transposed=call.place.draft(StepKind.SPLIT))
    ranked = value if value.axes else replace(value, axes=(*(None,) * (len(axes) - 1), value.last))
    moved = layout.permuted(ranked, known)
    permuted = value.grid.permuted(known) if value.grid else None
    return moved.changed(transposed=call.place.draft(StepKind.SPLIT), grid=permuted)


def movedim(call: Call) -> Value:
    value = call.arg(0, "input")
    if not isinstance(value, Tensor):
        return masks.moved(value)
    source, target = call.integer(1, "source"), call.integer(2, "destination")
    moved = value.shaped(None, None)
    if value.axes and source is not None and target is not None:
        axes = list(range(len(value.axes)))
        axes.insert(target % len(axes), axes.pop(source))
        moved = layout.permuted(value, axes)
    return moved.changed(transposed=call.place.draft(StepKind.SPLIT))


def view(call: Call) -> Value:
    value, target = as_tensor(call.arg(0)), _target(call)
    if value is not None and value.transposed and target is not None and layout.illegal_view(value, len(target)):
        place = call.place.draft(StepKind.MERGE)
        call.place.record.illegal_views.append(Event(place, related=value.transposed, label="transposed here"))
    return _regrouped(call, call.arg(0), target)


def reshape(call: Call) -> Value:
    return _regrouped(call, call.arg(0, "input"), _target(call))


def flatten(call: Call) -> Value:
    value = as_tensor(call.arg(0, "input"))
    if value is None or as_mask(call.arg(0)):
        return _flattened(_mask_or(call.arg(0, "input")), call.integer(1, "start_dim"))
    first, last = call.given(1, "start_dim"), call.given(2, "end_dim")
    start, end = (integer(bound) if bound is not None else default for bound, default in ((first, 0), (last, -1)))
    if value.axes is None or start is None or end is None:
        return value.shaped(None, None)
    start, end = start % len(value.axes), end % len(value.axes)
    return _regrouped(
        call, value, (*value.axes[:start], joined_axis(value.axes[start : end + 1]), *value.axes[end + 1 :])
    )


def _mask_or(value: Value) -> Value:
    return as_mask(value) or value


def _flattened(value: Value, start: int | None) -> Value:
    """``mask.flatten(1)`` has two axes, and the first is what it was: the batch."""
    if isinstance(value, Mask) and start == 1:
        return replace(value, rank=2, per_sample=True)
    return masks.reshaped(value)


def unflatten(call: Call) -> Value:
    value, sizes, at = as_tensor(call.arg(0, "input")), call.arg(2, "sizes"), call.integer(1, "dim")
    if value is None or not isinstance(sizes, Sequence) or sizes.endless:
        return UNKNOWN
    axes = tuple(item if isinstance(item, Scalar) else None for item in sizes.items)
    if value.axes is not None and at is not None:
        at %= len(value.axes)
        return _regrouped(call, value, (*value.axes[:at], *axes, *value.axes[at + 1 :]))
    rest = layout.viewed(value, axes).last if at == -1 else None
    before_last = axes[-2] if at == -1 and len(axes) > 1 else None
    result = value.shaped(None, None).changed(last=rest, before_last=before_last)
    return result.after(call.place.draft(StepKind.SPLIT)) if layout.splits_heads(axes) else result


def unsqueeze(call: Call) -> Value:
    value, at = call.arg(0, "input"), call.integer(1, "dim")
    if not isinstance(value, Tensor):
        if isinstance(value, Positions):
            return positions.unsqueezed(value, at)
        return masks.new_axis(_mask_or(rows.widened(value, at)), at)
    if at == 1:
        value = value.changed(pads=None)  # one of each sample, and no sequence
    if value.axes is None or at is None:
        return replace(value, axes=None, order=None, grid=None)
    at %= len(value.axes) + 1
    return value.shaped((*value.axes[:at], Scalar(1.0), *value.axes[at:]), None)


def squeeze(call: Call) -> Value:
    value, at = call.arg(0, "input"), call.integer(1, "dim")
    if not isinstance(value, Tensor):
        return value
    if value.axes is None or at is None or value.axes[at % len(value.axes)] != Scalar(1.0):
        return replace(value, axes=None, order=None, grid=None)
    at %= len(value.axes)
    return value.shaped((*value.axes[:at], *value.axes[at + 1 :]), None)


def gather(call: Call) -> Value:
    """``x.gather(1, index)``: picks positions, so that the second axis is theirs."""
    value = as_tensor(call.arg(0, "input"))
    if value is None or value.role is not Role.ACTIVATION or as_mask(call.arg(0, "input")):
        return call.arg(0, "input")
    picks_positions = call.integer(1, "dim") == 1 and (value.axes is None or len(value.axes) == 3)
    timed = (1, call.place.draft(StepKind.SPLIT)) if picks_positions else None
    return value.shaped(None, None).changed(timed=timed)


def joined_axes(call: Call, parts: Iterable[Tensor]) -> Axes | None:
    """The axes of ``torch.cat(parts, dim)``; the one along which they are joined has no known size."""
    known, given = [part.axes for part in parts if part.axes], call.given(1, "dim", "axis")
    at = 0 if given is None else integer(given)
    if not known or at is None or not -len(known[-1]) <= at < len(known[-1]):
        return None
    axes = list(known[-1])
    axes[at] = None
    return tuple(axes)


def value_of_unknown(value: Value, target: Axes | None) -> Value:
    """A view of what is not known to be an activation: keeps its name, and its new axes."""
    if isinstance(value, Unknown) and target is not None and not as_mask(value):
        return Tensor(name=value.name, axes=target, last=target[-1] if target else None)
    return value


def _regrouped(call: Call, given: Value, target: Axes | None) -> Value:
    """A view as ``target``, which is a fault where it moves an axis."""
    if isinstance(given, Unknown) and given.rows is not None and target and target[-1] == Scalar(1.0):
        return replace(given, rows=True)
    value = as_tensor(given)
    if isinstance(given, Positions):
        return positions.viewed(given, [axis or UNKNOWN for axis in target]) if target else UNKNOWN
    if value is None or as_mask(given):
        return masks.reshaped(_mask_or(given))
    moved = moved_axis(value.axes, target) if value.axes and target else None
    if isinstance(given, Unknown) and value.name and not value.traced:
        return value_of_unknown(given, target)
    result = layout.viewed(value, target).changed(grid=grid.viewed(value, target))
    if target:
        grouping.viewed(call.place, value, target)
    has_heads = any(layout.holds_heads(axis) for axis in (*(value.axes or ()), *(target or ())))
    is_known = value.axes and target and None not in (*value.axes, *target)
    if moved and target and is_known and value.role in (Role.ACTIVATION, Role.CONTEXT) and not has_heads:
        text = (
            f"{text_of(value.axes or ())} is read as {text_of(target)}; the axes change their order, the numbers do not"
        )
        call.place.record.note(Trouble.MOVED_AXIS, Event(call.place.draft(StepKind.SPLIT), text))
    if value.role is Role.CONTEXT:
        scrambles = "heads are still before time" if moved and has_heads else ""
        call.place.record.add(value, call.place.draft(StepKind.MERGE, stage=Stage.CONTEXT, scrambles=scrambles))
    elif value.role is Role.ACTIVATION and target and layout.splits_heads(target):
        scrambles = ""
        if moved:
            scrambles = "heads are cut from the positions, not from the features"
        elif layout.cut_from_rows(value, target):
            scrambles = "heads are taken from the rows, not from the columns"
        result = result.after(call.place.draft(StepKind.SPLIT, scrambles=scrambles))
    return result


def _target(call: Call) -> Axes | None:
    """The axes that a view asks for; None where their number is not known."""
    given = call.args[1:] or tuple(call.kwargs[name] for name in ("size", "shape") if name in call.kwargs)
    if call.spread or not given or (len(given) == 1 and isinstance(given[0], Sequence) and given[0].endless):
        return None
    axes: list[Scalar | None] = []
    for item in _items(given):
        if isinstance(item, Shape) or (isinstance(item, Sequence) and item.endless):
            return None
        axes.append(item if isinstance(item, Scalar) else None)
    if len(given) == 1 and not isinstance(given[0], Sequence | Scalar):
        return None
    return tuple(axes) or None


def _items(values: Iterable[Value]) -> list[Value]:
    values = list(values)
    if len(values) == 1 and isinstance(values[0], Sequence):
        return list(values[0].items)
    return values
