"""What views, transposes and permutations do to the axes of a tensor, and which of them are faults.

Axes are `Scalar`s (None: unknown size). Nothing here looks at values; only at which axis goes where.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from attn_guard.anatomy import Size
from attn_guard.lint import names
from attn_guard.lint.moved_axes import REST, joined_axis, plain, product, quotient
from attn_guard.lint.values import Atom, Axes, Scalar, Tensor

CONTIGUOUS: tuple[int, ...] = ()


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
        moved = tensor.shaped(None, None)
        are_last = {first, second} == {-1, -2}
        return moved.changed(last=tensor.before_last, before_last=tensor.last) if are_last else moved
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
    return tensor.shaped(tuple(_with_parts(tensor.axes or (), axes)), order)


def _rest(tensor: Tensor, target: Axes) -> Scalar | None:
    """The size of the -1 axis of a view, as far as it can be known."""
    named = [axis for axis in target if axis != REST]
    if len(named) != len(target) - 1 or not named:
        return None
    if (
        tensor.axes is None
        and tensor.name
        and len(target) == 3
        and target[0] == REST
        and _is_before_last(tensor, target[1])
    ):
        return Scalar(powers=((Atom(f"{tensor.name}{IN_FRONT}"), 1.0),))
    rest = quotient(product(tensor.axes), product(named)) if tensor.axes else None
    if rest is None and target[-1] == REST and tensor.last and named[-1] and is_heads(named[-1]):
        inverse = named[-1].to_power(-1.0)
        return tensor.last.times(inverse) if inverse else None
    return rest


IN_FRONT = ".shape[:-2]"  # of a tensor, folded into one axis


def _is_before_last(tensor: Tensor, axis: Scalar | None) -> bool:
    return axis is not None and [atom.name for atom, _ in axis.powers] == [f"{tensor.name}.shape[-2]"]


def _with_parts(source: Axes, target: Axes) -> Iterator[Scalar | None]:
    """The axes of a view; those that join neighbours remember them."""
    at = 0
    for axis in target:
        ends = [end for end in range(at + 2, len(source) + 1) if axis is not None and product(source[at:end]) == axis]
        yield joined_axis(source[at : ends[0]]) if ends else axis
        at = ends[0] if ends else (at + 1 if at < len(source) and source[at] == axis else len(source))


def width(tensor: Tensor) -> Scalar:
    """The size of the last axis, a size of its own where nothing is known of it.

    Queries, keys and values are taken to be equally wide; whether that is the width of a head, nobody can see here.
    """
    if tensor.last:
        return tensor.last
    owner = "operand" if names.is_operand(tensor.name) else tensor.name or id(tensor)
    return Scalar(powers=((Atom(f"{owner}.shape[-1]"), 1.0),))


def is_heads(axis: Scalar | None) -> bool:
    return axis is not None and axis.size == (Size.HEADS, 1.0)


def holds_heads(axis: Scalar | None) -> bool:
    """Whether an axis is the heads, or folds them with others."""
    return axis is not None and any(atom.size is Size.HEADS and power > 0 for atom, power in axis.powers)


def is_head_dim(axis: Scalar | None) -> bool:
    return axis is not None and axis.size == (Size.HEAD_DIM, 1.0)


def is_d_model(axis: Scalar | None) -> bool:
    return axis is not None and axis.size == (Size.D_MODEL, 1.0)


def is_plane(axis: Scalar | None) -> bool:
    """Whether an axis is the height of an image times its width."""
    return (
        axis is not None and axis.number == 1.0 and names.are_height_and_width([atom.name for atom, _ in axis.powers])
    )


def splits_heads(target: Axes) -> bool:
    return any(is_heads(axis) or is_head_dim(axis) or _heads_beside_another(axis) for axis in target)


def illegal_view(tensor: Tensor, rank: int) -> bool:
    """Whether ``view`` to fewer axes must fail: no two neighbouring axes lie next to each other in memory."""
    order = tensor.order
    if not order or rank >= len(order) or tensor.axes is None or any(axis == Scalar(1.0) for axis in tensor.axes):
        return False
    return all(first + 1 != second for first, second in pairwise(order))


def cut_from_rows(tensor: Tensor, target: Axes) -> bool:
    """Whether a projection of unknown rank is viewed so that its heads are cut from the rows: (…, heads * head_dim) as
    (batch, heads, time, head_dim) or (batch * heads, time, head_dim)."""
    if tensor.axes is not None or not tensor.last or len(target) not in (3, 4) or Scalar(1.0) in target:
        return False
    first, second, *_, width = target
    heads = _heads_beside_another(first) if len(target) == 3 else second
    if heads is None or not is_heads(heads):
        return False
    return is_d_model(tensor.last) if width == REST else quotient(plain(tensor.last), plain(width)) == plain(heads)


def _heads_beside_another(axis: Scalar | None) -> Scalar | None:
    """The heads in an axis such as ``batch * heads``."""
    if axis is None or len(axis.powers) != 2 or axis.number != 1.0 or any(power != 1.0 for _, power in axis.powers):
        return None
    heads, others = ([pair for pair in axis.powers if pair[0].size is size] for size in (Size.HEADS, None))
    return Scalar(1.0, (heads[0],)) if len(heads) == len(others) == 1 else None


def product_axes(left: Tensor, right: Tensor) -> Axes | None:
    """The axes of ``left @ right``, where the rank of ``left`` is known and that of ``right`` is not another one."""
    if left.axes is None or len(left.axes) < 2 or (right.axes is not None and len(right.axes) != len(left.axes)):
        return None
    return (*left.axes[:-1], right.axes[-1] if right.axes else right.last)


def indexed(tensor: Tensor) -> Tensor:
    """One item along the first axis."""
    if tensor.axes and len(tensor.axes) > 1:
        order = tensor.order
        if order:
            order = tuple(place - 1 for place in order[1:]) if order[0] == 0 else None
        return tensor.changed(axes=tensor.axes[1:], order=order, timed=None, ran=None, grid=None, pads=None)
    return tensor.changed(axes=None, order=None, timed=None, ran=None, grid=None, pads=None)


def divided(axis: Scalar | None, parts: int) -> Scalar | None:
    """One of ``parts`` equal parts of an axis."""
    return axis.times(Scalar(1.0 / parts)) if axis else None
