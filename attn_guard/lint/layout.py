"""What views, transposes and permutations do to the axes of a tensor, and which of them are faults.

Axes are `Scalar`s (None: unknown size). Nothing here looks at values; only at which axis goes where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from attn_guard.anatomy import Size
from attn_guard.lint.values import Axes, Role, Scalar, Tensor

CONTIGUOUS: tuple[int, ...] = ()
REST = Scalar(-1.0)  # the axis of a view whose size is left to torch


def permuted(tensor: Tensor, axes: Sequence[int]) -> Tensor:
    """``tensor.permute(axes)``."""
    if tensor.axes is None or sorted(axis % len(tensor.axes) for axis in axes) != list(range(len(tensor.axes))):
        return tensor.shaped(None, None)
    rank = len(tensor.axes)
    order = None
    if tensor.order is not None:
        memory = tensor.order or tuple(range(rank))
        order = tuple(memory[axis % rank] for axis in axes)
        order = CONTIGUOUS if order == tuple(range(rank)) else order
    return tensor.shaped(tuple(tensor.axes[axis % rank] for axis in axes), order)


def transposed(tensor: Tensor, first: int, second: int) -> Tensor:
    """``tensor.transpose(first, second)``."""
    if tensor.axes is None:
        return tensor.shaped(None, None)
    rank = len(tensor.axes)
    if not (-rank <= first < rank and -rank <= second < rank):
        return tensor.shaped(None, None)
    axes = list(range(rank))
    axes[first], axes[second] = axes[second], axes[first]
    return permuted(tensor, axes)


def viewed(tensor: Tensor, target: Axes | None) -> Tensor:
    """``tensor.view(target)`` or ``tensor.reshape(target)``; a target of None has unknown rank."""
    order = CONTIGUOUS if tensor.order == CONTIGUOUS else None
    if target is None:
        return tensor.shaped(None, order)
    axes = tuple(_rest(tensor, target) if axis == REST else axis for axis in target)
    return tensor.shaped(axes, order)


def _rest(tensor: Tensor, target: Axes) -> Scalar | None:
    """The size of the -1 axis of a view, as far as it can be known."""
    named = [axis for axis in target if axis != REST]
    if len(named) != len(target) - 1 or not named:
        return None
    source = _product(tensor.axes) if tensor.axes else None
    taken = _product(tuple(named))
    if source and taken and taken.number:
        inverse = taken.to_power(-1.0)
        rest = source.times(inverse) if inverse else None
        if rest and all(power > 0 for _, power in rest.powers):
            return rest
    if target[-1] == REST and tensor.last and named[-1] and is_heads(named[-1]):
        inverse = named[-1].to_power(-1.0)
        return tensor.last.times(inverse) if inverse else None
    return None


def _product(axes: Axes) -> Scalar | None:
    product = Scalar()
    for axis in axes:
        if axis is None:
            return None
        product = product.times(axis)
    return product


def is_heads(axis: Scalar | None) -> bool:
    return axis is not None and axis.size == (Size.HEADS, 1.0)


def is_head_dim(axis: Scalar | None) -> bool:
    return axis is not None and axis.size == (Size.HEAD_DIM, 1.0)


def is_d_model(axis: Scalar | None) -> bool:
    return axis is not None and axis.size == (Size.D_MODEL, 1.0)


def splits_heads(target: Axes) -> bool:
    return any(is_heads(axis) or is_head_dim(axis) for axis in target)


def illegal_view(tensor: Tensor, rank: int) -> bool:
    """Whether ``view`` to fewer axes must fail: no two neighbouring axes lie next to each other in memory."""
    order = tensor.order
    if not order or rank >= len(order) or tensor.axes is None or any(axis == Scalar(1.0) for axis in tensor.axes):
        return False
    return all(first + 1 != second for first, second in pairwise(order))


def scrambled(tensor: Tensor, target: Axes) -> str:
    """How a view mixes heads with positions, or "" where it does not or nobody can know."""
    if any(axis == Scalar(1.0) for axis in target):
        return ""
    if tensor.role is Role.CONTEXT:
        return _scrambled_merge(tensor.axes, target)
    return _scrambled_split(tensor, target)


def _scrambled_split(tensor: Tensor, target: Axes) -> str:
    """(batch, time, heads * head_dim) cut into heads before time."""
    if not tensor.last or is_head_dim(tensor.last) or not (is_head_dim(target[-1]) or target[-1] == REST):
        return ""
    folded = _heads_folded_into(target[0])
    if folded and len(target) == 3 and is_d_model(tensor.last) and tensor.axes is None:
        return "heads are taken from the rows, not from the columns"
    at = next((index for index, axis in enumerate(target) if is_heads(axis)), 0 if folded else None)
    if at is None or tensor.axes is None or None in tensor.axes[:-1]:
        return ""
    before = at + (1 if folded else 0)
    if len(target) + bool(folded) != len(tensor.axes) + 1 or before >= len(tensor.axes) - 1:
        return ""
    if target[0] != tensor.axes[0] and folded != tensor.axes[0]:
        return ""
    return "heads are cut from the positions, not from the features"


def _scrambled_merge(axes: Axes | None, target: Axes) -> str:
    """(batch, heads, time, head_dim) joined to (batch, time, d_model) with heads still before time."""
    if axes is None or len(target) != 3 or any(is_heads(axis) for axis in target):
        return ""
    folded = _heads_folded_into(axes[0])
    if folded:
        axes = (folded, axes[0], *axes[1:])
    if len(axes) != 4 or not (folded or is_heads(axes[1])) or target[0] != axes[0] or target[0] is None:
        return ""
    _, time, width = target
    merges = is_d_model(width) or (width == REST and time is not None and time == axes[2])
    if not merges or is_heads(axes[2]) or (time not in (axes[2], REST, None)):
        return ""
    return "heads are still before time"


def _heads_folded_into(axis: Scalar | None) -> Scalar | None:
    """What an axis such as ``batch * heads`` holds besides heads."""
    if axis is None or len(axis.powers) != 2 or axis.number != 1.0 or any(power != 1.0 for _, power in axis.powers):
        return None
    heads = [atom for atom, _ in axis.powers if atom.size is Size.HEADS]
    others = [atom for atom, _ in axis.powers if atom.size is None]
    return Scalar(1.0, ((others[0], 1.0),)) if len(heads) == len(others) == 1 else None


def product_axes(query: Tensor, key: Tensor) -> Axes | None:
    """The axes of ``query @ key`` for operands of equal rank."""
    if query.axes is None or key.axes is None or len(query.axes) != len(key.axes) or len(query.axes) < 2:
        return None
    return (*query.axes[:-1], key.axes[-1])


def indexed(tensor: Tensor) -> Tensor:
    """One item along the first axis."""
    if tensor.axes and len(tensor.axes) > 1:
        order = tensor.order
        if order:
            order = tuple(place - 1 for place in order[1:]) if order[0] == 0 else None
        return replace(tensor, axes=tensor.axes[1:], order=order)
    return replace(tensor, axes=None, order=None)


def divided(axis: Scalar | None, parts: int) -> Scalar | None:
    """One of ``parts`` equal parts of an axis."""
    return axis.times(Scalar(1.0 / parts)) if axis else None
