"""What the sizes that a new tensor is given say about its shape."""

from __future__ import annotations

from collections.abc import Sequence as Many

from attn_guard.lint import nodes as cst
from attn_guard.lint.place import Call
from attn_guard.lint.values import Scalar, Sequence, Value


def is_square(call: Call, first: int) -> bool | None:
    """Whether the last two sizes among the arguments, or in the tuple, from place ``first`` on are one; None if
    unknown.

    Sizes that are written differently and not known to be the same are taken for different ones.
    """
    given = call.args[first : first + 1] or tuple(
        call.kwargs[name] for name in ("size", "shape") if name in call.kwargs
    )
    if call.spread or not given:
        return None
    if isinstance(given[0], Sequence):
        return None if given[0].endless else _same(given[0].items, _written(call, first, in_tuple=True))
    return _same(call.args[first:], _written(call, first, in_tuple=False)) if len(call.args) > first + 1 else None


def _same(sizes: Many[Value], written: Many[cst.BaseExpression]) -> bool | None:
    if len(sizes) < 2:
        return None
    rows, columns = sizes[-2:]
    if isinstance(rows, Scalar) and isinstance(columns, Scalar):
        return rows == columns
    return written[-2].deep_equals(written[-1]) if len(written) > 1 else None


def _written(call: Call, first: int, *, in_tuple: bool) -> list[cst.BaseExpression]:
    """The sizes as they stand in the source; the receiver of a method is no argument there."""
    node = call.place.node
    if not isinstance(node, cst.Call):
        return []
    plain = [arg.value for arg in node.args if arg.keyword is None]
    if not in_tuple:
        return plain
    tuples = [value for value in plain if isinstance(value, cst.Tuple | cst.List)]
    return [element.value for element in tuples[0].elements] if tuples else []
