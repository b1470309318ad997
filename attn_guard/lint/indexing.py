"""``x[:, 0]``, ``x[..., :n]``, ``x[:, None]``: what several indices leave of the axes of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_guard.lint import attended_axes
from attn_guard.lint import nodes as cst
from attn_guard.lint.values import Axes, Scalar, Tensor

if TYPE_CHECKING:
    from attn_guard.lint.frame import Frame


def parts_of(frame: Frame, node: cst.Subscript, owner: Tensor) -> Tensor:
    """The tensor that a subscript with slices gives."""
    cuts = [element.slice for element in node.slice]
    if len(cuts) > 1 and _is_all(cuts[0]) and _is_place(cuts[1]):
        attended_axes.pooled(frame.place(node), owner, 1)
    axes = _left(owner.axes, cuts) if owner.axes else None
    if len(cuts) > 1 and _is_new(cuts[1]):
        owner = owner.changed(pads=None)  # one of each sample, and no sequence
    whole = not isinstance(cuts[-1], cst.Slice) or _is_all(cuts[-1])
    if owner.axes is None and len(cuts) > 1 and not whole and all(isinstance(cut, cst.Slice) for cut in cuts):
        axes = (None,) * len(cuts)  # x[:, :, :n] shows how many there are
    return owner.changed(axes=axes, last=owner.last if whole else None, order=None, timed=None, ran=None, grid=None)


def _left(axes: Axes, cuts: list[cst.BaseSlice]) -> Axes | None:
    taken = sum(not (_is_new(cut) or _is_ellipsis(cut)) for cut in cuts)
    rest = list(axes)
    left: list[Scalar | None] = []
    for cut in cuts:
        if _is_new(cut):
            left.append(Scalar(1.0))
        elif _is_ellipsis(cut):
            count = len(axes) - taken
            left, rest = [*left, *rest[:count]], rest[count:]
        elif not rest:
            return None
        elif isinstance(cut, cst.Slice):
            axis = rest.pop(0)
            left.append(axis if _is_all(cut) else None)
        elif _is_place(cut):
            rest.pop(0)
        else:
            return None
    return (*left, *rest) or None


def _is_all(cut: cst.BaseSlice) -> bool:
    return isinstance(cut, cst.Slice) and cut.lower is cut.upper is cut.step is None


def _is_place(cut: cst.BaseSlice) -> bool:
    """A number, such as 0 or -1."""
    value = cut.value if isinstance(cut, cst.Index) else None
    if isinstance(value, cst.UnaryOperation):
        value = value.expression
    return isinstance(value, cst.Integer)


def _is_new(cut: cst.BaseSlice) -> bool:
    return isinstance(cut, cst.Index) and isinstance(cut.value, cst.Name) and cut.value.value == "None"


def _is_ellipsis(cut: cst.BaseSlice) -> bool:
    return isinstance(cut, cst.Index) and isinstance(cut.value, cst.Ellipsis)
