"""How many axes a table has that a constructor makes, and which of them are of size 1.

Read with `ast` and only where a table is added to features: the walk does not follow what is written into tables.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_MAKES = frozenset({"zeros", "ones", "empty", "rand", "randn"})
_KEEPS = frozenset({"float", "to", "clone", "detach", "contiguous", "type_as", "Parameter"})

Axes = tuple[str, ...]


def table_axes(name: str, constructor: str) -> Axes | None:
    """The sizes of ``self.name`` as they are written; None where its number of axes is not plain to see."""
    try:
        tree = ast.parse(f"if 1:\n{constructor}")
    except (SyntaxError, ValueError):
        return None
    known: dict[str, Axes | None] = {}
    for target, value in _assigned(tree):
        known[target] = _axes(value, known)
    return known.get(f"self.{name}")


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """What each name and attribute is set to, in the order of the lines."""
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.Expr)]
    for statement in sorted(statements, key=lambda node: node.lineno):
        value = statement.value
        if isinstance(statement, ast.Assign):
            yield from ((ast.unparse(target), value) for target in statement.targets)
        elif isinstance(value, ast.Call) and ast.unparse(value.func) == "self.register_buffer" and len(value.args) > 1:
            yield f"self.{getattr(value.args[0], 'value', '')}", value.args[1]


def _axes(node: ast.expr, known: dict[str, Axes | None]) -> Axes | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return known.get(ast.unparse(node))
    owner, name = node.func.value, node.func.attr
    if name in _MAKES:
        sizes: Sequence[ast.expr] = node.args
        if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple | ast.List):
            sizes = sizes[0].elts
        return tuple(map(ast.unparse, sizes)) or None
    if name in _KEEPS:
        return _axes(node.args[0] if name == "Parameter" and node.args else owner, known)
    axes, numbers = _axes(owner, known), [_number(arg) for arg in node.args]
    if axes is None or None in numbers:
        return None
    return _moved(name, axes, [number for number in numbers if number is not None])


def _number(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, int) else None


def _moved(name: str, axes: Axes, at: list[int]) -> Axes | None:
    if name == "unsqueeze" and len(at) == 1:
        place = at[0] % (len(axes) + 1)
        return (*axes[:place], "1", *axes[place:])
    if name == "transpose" and len(at) == 2 and max(at) < len(axes):
        moved = list(axes)
        moved[at[0]], moved[at[1]] = axes[at[1]], axes[at[0]]
        return tuple(moved)
    return None
