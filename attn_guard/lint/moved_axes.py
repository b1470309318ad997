"""Tells a reshape that only splits and joins neighbouring axes from one that moves an axis.

A reshape moves no number. An axis that keeps its size but has other sizes in front of it afterwards is therefore no
longer the same axis: (batch, time, heads * head_dim) read as (batch, heads, time, head_dim).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isclose

from attn_guard.anatomy import Size
from attn_guard.lint.values import Atom, Axes, Scalar

REST = Scalar(-1.0)  # the axis of a view whose size is left to torch

_HEADS, _HEAD_DIM, _SAME = Atom("heads", Size.HEADS), Atom("head_dim", Size.HEAD_DIM), Atom("the same unknown")


def moved_axis(source: Axes, target: Axes) -> Scalar | None:
    """An axis of ``source`` that ``target`` has too, with another number of elements in front of it.

    None where no axis moves, and where the sizes are not known well enough: both shapes must be known to hold the
    same number of elements.
    """
    solved = _solved(_plain(_parts(source)), _plain(_parts(target)))
    if solved is None:
        return None
    before, after = solved
    for at, axis in enumerate(before):
        if not axis.powers or before.count(axis) != 1 or after.count(axis) != 1:
            continue
        if product(before[:at]) != product(after[: after.index(axis)]):
            return axis
    return None


def product(axes: Iterable[Scalar | None]) -> Scalar | None:
    """The number of elements, None where a size is not known."""
    result = Scalar()
    for axis in axes:
        if axis is None:
            return None
        result = result.times(axis)
    return result


def quotient(whole: Scalar | None, part: Scalar | None) -> Scalar | None:
    """``whole / part`` where that is sure to be a number of elements."""
    inverse = part.to_power(-1.0) if part else None
    ratio = whole.times(inverse) if whole and inverse else None
    return ratio if ratio and ratio.number >= 1.0 and all(power > 0 for _, power in ratio.powers) else None


def joined_axis(axes: Axes) -> Scalar | None:
    """Neighbouring axes as one axis, which remembers what it was joined of."""
    whole = product(axes)
    return Scalar(whole.number, whole.powers, parts=tuple(_parts(axes))) if whole else None


def plain(axis: Scalar | None) -> Scalar | None:
    """An axis in terms of heads and head_dim, whatever these are called where it comes from."""
    if axis is None or axis == REST:
        return None
    result = Scalar(axis.number)
    for atom, power in axis.powers:
        for part in _MEANING.get(atom.size, (atom,)) if atom.size else (atom,):
            result = result.times(Scalar(1.0, ((part, power),)))
    return result


_MEANING = {Size.D_MODEL: (_HEADS, _HEAD_DIM), Size.HEADS: (_HEADS,), Size.HEAD_DIM: (_HEAD_DIM,)}


def _parts(axes: Axes) -> list[Scalar | None]:
    return [part for axis in axes for part in (axis.parts if axis is not None and axis.parts else (axis,))]


def _plain(axes: list[Scalar | None]) -> list[Scalar | None]:
    return [plain(axis) for axis in axes]


def _solved(before: list[Scalar | None], after: list[Scalar | None]) -> tuple[list[Scalar], list[Scalar]] | None:
    """Both shapes with the size that follows from all others, or None where one cannot follow from the other."""
    missing = before.count(None), after.count(None)
    if missing == (1, 1):
        same = Scalar(1.0, ((_SAME, 1.0),))
        before, after = [axis or same for axis in before], [axis or same for axis in after]
    elif missing == (0, 1):
        after = _filled(after, before)
    elif missing == (1, 0):
        before = _filled(before, after)
    total, other = product(before), product(after)
    if total is None or other is None or total.powers != other.powers or not isclose(total.number, other.number):
        return None
    return [axis for axis in before if axis], [axis for axis in after if axis]


def _filled(axes: list[Scalar | None], whole: list[Scalar | None]) -> list[Scalar | None]:
    rest = quotient(product(whole), product(axis for axis in axes if axis is not None))
    return [rest if axis is None else axis for axis in axes]
