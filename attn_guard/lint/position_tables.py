"""Sees that a table of positions is added: ``x + self.table[:, : x.size(1)]`` says which axis of x is time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attn_guard.anatomy import StepKind
from attn_guard.lint import expressions, names
from attn_guard.lint import nodes as cst
from attn_guard.lint.arithmetic import as_mask, as_tensor
from attn_guard.lint.record import Event, Trouble
from attn_guard.lint.table_axes import table_axes
from attn_guard.lint.values import Role, Scalar, Tensor, Unknown, Value

if TYPE_CHECKING:
    from attn_guard.lint.frame import Frame


@dataclass(frozen=True, slots=True)
class Cut:
    """A table that is cut along its axis ``at`` to the length of another tensor.

    lengths: the axes of that whose length it may be, depending on a switch. size: that length, where it is one.
    plain: nothing moves the table afterwards.
    """

    table: str
    at: int
    lengths: tuple[int, ...]
    size: Scalar | None = None
    plain: bool = True


def with_positions(frame: Frame, node: cst.CSTNode, left: Value, right: Value, result: Value) -> Value:
    """The sum of left and right, with the axis along which one of them is cut to the length of the other."""
    sides = (node.left, node.right) if isinstance(node, cst.BinaryOperation) else ()
    if isinstance(node, cst.AugAssign):
        sides = (node.target, node.value)
    for table, other in zip(sides, (right, left), strict=False):
        cut = _cut(frame, table)
        is_features = isinstance(result, Tensor) and result.role is not Role.PARAMETER
        kept = as_tensor(result if is_features else other)
        if cut is not None and kept is not None and kept.role is Role.ACTIVATION and not as_mask(other):
            draft = frame.place(node).draft(StepKind.BIAS)
            if _is_misplaced(frame, cut, kept):
                frame.walk.record.note(Trouble.POSITIONS_ELSEWHERE, Event(draft))
            return replace(kept, timed=(cut.lengths[0], draft)) if len(cut.lengths) == 1 else kept
    return result


def _is_misplaced(frame: Frame, cut: Cut, features: Tensor) -> bool:
    """Whether the axis that the table is cut along meets another axis of the features than the one whose length it
    has."""
    classes = frame.walk.family(frame.region.owner) if frame.region.owner and cut.plain else ()
    texts = (cls.methods["__init__"].text for cls in classes if "__init__" in cls.methods)
    axes = next((found for text in texts if (found := table_axes(cut.table, text))), None)
    if axes is None:
        return False
    if features.axes is None or cut.size is None:
        return len(cut.lengths) > 1
    met = len(features.axes) - len(axes) + cut.at
    other = features.axes[met] if 0 <= met < len(features.axes) else None
    return cut.size in features.axes and other is not None and other != cut.size


def _cut(frame: Frame, node: cst.BaseExpression) -> Cut | None:
    """A table of the module in an expression, that is cut to the length of another tensor."""
    if isinstance(node, cst.Call):
        moves = isinstance(node.func, cst.Attribute) and node.func.attr.value not in _STAYS
        inner = [node.func.value] if isinstance(node.func, cst.Attribute) else []
        parts = (*inner, *(arg.value for arg in node.args if not isinstance(arg.value, cst.Lambda)))
        cut = next((cut for part in parts if (cut := _cut(frame, part))), None)
        return replace(cut, plain=cut.plain and not moves) if cut else None
    if not isinstance(node, cst.Subscript) or not _is_table(node.value):
        return None
    for at, element in enumerate(node.slice):
        cut_to = element.slice
        if isinstance(cut_to, cst.Slice) and cut_to.upper is not None and cut_to.lower is cut_to.step is None:
            size, lengths = _lengths(frame, cut_to.upper)
            if lengths:
                plain = all(isinstance(other.slice, cst.Slice) for other in node.slice)
                return Cut(_attribute(node.value), at, lengths, size, plain)
    return None


_STAYS = frozenset({"to", "type_as", "float", "detach", "clone", "requires_grad_", "cuda"})


def _lengths(frame: Frame, node: cst.BaseExpression) -> tuple[Scalar | None, tuple[int, ...]]:
    """The size that an expression is, and the axes of a tensor that it may be the length of."""
    length = expressions.evaluate(frame, node)
    if isinstance(length, Scalar) and length.number == 1.0 and len(length.powers) == 1:
        atom, power = length.powers[0]
        return (length, (atom.axis,)) if power == 1.0 and atom.axis in (0, 1) else (None, ())
    method = node.func if isinstance(node, cst.Call) and len(node.args) == 1 else None
    asks = isinstance(node, cst.Call) and isinstance(method, cst.Attribute) and method.attr.value == "size"
    chosen = expressions.evaluate(frame, node.args[0].value) if isinstance(node, cst.Call) and asks else None
    either = chosen.either if isinstance(chosen, Unknown) else ()
    return None, tuple(int(axis) for axis in either if axis in (0.0, 1.0))


def _is_table(node: cst.BaseExpression) -> bool:
    """``self.table``, which is no mask."""
    owner = node.value if isinstance(node, cst.Attribute) else None
    return isinstance(owner, cst.Name) and not names.is_mask(_attribute(node))


def _attribute(node: cst.BaseExpression) -> str:
    return node.attr.value if isinstance(node, cst.Attribute) else ""
