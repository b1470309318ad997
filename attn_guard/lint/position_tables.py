"""Sees that a table of positions is added: ``x + self.table[:, : x.size(1)]`` says which axis of x is time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attn_guard.anatomy import StepKind
from attn_guard.lint import expressions, names
from attn_guard.lint import nodes as cst
from attn_guard.lint.arithmetic import as_mask, as_tensor
from attn_guard.lint.values import Role, Scalar, Tensor, Value

if TYPE_CHECKING:
    from attn_guard.lint.frame import Frame


def with_positions(frame: Frame, node: cst.CSTNode, left: Value, right: Value, result: Value) -> Value:
    """The sum of left and right, with the axis along which one of them is cut to the length of the other."""
    sides = (node.left, node.right) if isinstance(node, cst.BinaryOperation) else ()
    if isinstance(node, cst.AugAssign):
        sides = (node.target, node.value)
    for table, other in zip(sides, (right, left), strict=False):
        axis = _cut_axis(frame, table)
        is_features = isinstance(result, Tensor) and result.role is not Role.PARAMETER
        kept = as_tensor(result if is_features else other)
        if axis is not None and kept is not None and kept.role is Role.ACTIVATION and not as_mask(other):
            return replace(kept, timed=(axis, frame.place(node).draft(StepKind.BIAS)))
    return result


def _cut_axis(frame: Frame, node: cst.BaseExpression) -> int | None:
    """The axis of another tensor whose length a table of the module is cut to; None where the node is no such table."""
    if isinstance(node, cst.Call):
        inner = [node.func.value] if isinstance(node.func, cst.Attribute) else []
        parts = (*inner, *(arg.value for arg in node.args if not isinstance(arg.value, cst.Lambda)))
        found = (_cut_axis(frame, part) for part in parts)
        return next((axis for axis in found if axis is not None), None)
    if not isinstance(node, cst.Subscript) or not _is_table(node.value):
        return None
    for element in node.slice:
        cut = element.slice
        if isinstance(cut, cst.Slice) and cut.upper is not None and cut.lower is None and cut.step is None:
            length = expressions.evaluate(frame, cut.upper)
            if isinstance(length, Scalar) and length.number == 1.0 and len(length.powers) == 1:
                atom, power = length.powers[0]
                if power == 1.0 and atom.axis in (0, 1):
                    return atom.axis
    return None


def _is_table(node: cst.BaseExpression) -> bool:
    """``self.table``, which is no mask."""
    owner = node.value if isinstance(node, cst.Attribute) else None
    return isinstance(owner, cst.Name) and not names.is_mask(node.attr.value if isinstance(node, cst.Attribute) else "")
