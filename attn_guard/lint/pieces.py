"""Operations that cut tensors into pieces, and that put pieces together."""

from __future__ import annotations

from dataclasses import replace

from attn_guard.anatomy import StepKind
from attn_guard.lint import layout, names, reshaping
from attn_guard.lint.arithmetic import as_mask
from attn_guard.lint.place import Call, integer
from attn_guard.lint.values import UNKNOWN, Grown, Mask, Role, Scalar, Sequence, Tensor, Unknown, Value


def chunk(call: Call) -> Value:
    """``tensor_split``: parts that all went through the same."""
    value = call.arg(0, "input")
    if isinstance(value, Tensor):
        value = value.shaped(None, None)
    return Sequence((value,), endless=True)


def split(call: Call) -> Value:
    """``x.split(size, dim)`` and ``x.split([first, second], dim)``."""
    value, sizes, at = call.arg(0, "input"), call.arg(1, "split_size_or_sections"), call.given(2, "dim")
    if not isinstance(value, Tensor):
        return Sequence((value,), endless=True)
    axis = 0 if at is None else integer(at)
    if isinstance(sizes, Sequence) and not sizes.endless:
        return Sequence(tuple(_cut(value, axis, size) for size in sizes.items))
    return Sequence((_cut(value, axis, sizes),), endless=True)


def _cut(value: Tensor, axis: int | None, size: Value) -> Tensor:
    """A piece along one axis."""
    width = size if isinstance(size, Scalar) else None
    if value.axes is None:
        return replace(value.shaped(None, None), last=width if axis == -1 else None)
    rank = len(value.axes)
    if axis is None or not -rank <= axis < rank:
        return value.shaped(None, None)
    return value.shaped((*value.axes[: axis % rank], width, *value.axes[axis % rank + 1 :]), None)


def chunk_equal(call: Call) -> Value:
    value = call.arg(0, "input")
    parts = call.integer(1, "chunks")
    axis = call.integer(2, "dim", "axis")
    if isinstance(value, Tensor):
        rank = len(value.axes) if value.axes else 0
        source = value.steps[-1] if value.steps else None
        if parts == 3 and axis in (-1, 2) and source and source.kind is StepKind.PROJECTION:
            call.place.record.thirds.append((call.place.draft(StepKind.SPLIT), source))
        if parts and axis is not None and axis in (-1, rank - 1):
            last = layout.divided(value.last, parts)
            axes = (*value.axes[:-1], last) if value.axes else None
            value = replace(value, axes=axes, last=last, order=None, grid=None)
        else:
            value = value.shaped(None, None)
    return Sequence((value,) * parts) if parts else Sequence((value,), endless=True)


def unbind(call: Call) -> Value:
    value = call.arg(0, "input")
    if isinstance(value, Tensor):
        first = call.integer(1, "dim")
        if first == -1 and value.steps and value.steps[-1].kind is StepKind.PROJECTION:
            value = replace(
                value, traced=False
            )  # the features themselves are taken apart, so none are left to sum over
        item = layout.indexed(value) if first in (None, 0) else replace(value, axes=None, order=None, grid=None)
        return Sequence((item,), endless=True)
    return Sequence((value,), endless=True)


def joined(call: Call) -> Value:
    """``cat``: what is known of the parts that are known."""
    parts = call.arg(0, "tensors")
    items = parts.items if isinstance(parts, Sequence) else ()
    known = [item for item in items if isinstance(item, Tensor) and item.steps]
    if known:
        rest = known[-1].changed(axes=reshaping.joined_axes(call, known), order=None, before_last=None)
        if len(known) == 1 and any(isinstance(item, Unknown) and names.is_cache(item.name) for item in items):
            rest = rest.changed(grown=Grown(call.place.draft(StepKind.SPLIT), call.place.record.branches))
        return rest.changed(opaque=rest.opaque or rest.role is Role.SCORES)
    masks = [mask for item in items if (mask := as_mask(item))]
    if masks:
        return Mask(masks[0].meaning if all(m.meaning is masks[0].meaning for m in masks) else None, name=masks[0].name)
    plain = [item for item in items if isinstance(item, Tensor) and item.role is Role.ACTIVATION]
    return Tensor(axes=reshaping.joined_axes(call, plain)) if plain else UNKNOWN


def stacked(call: Call) -> Value:
    """``stack``, which gives one more axis."""
    value = joined(call)
    return replace(value, axes=None) if isinstance(value, Tensor) else value
