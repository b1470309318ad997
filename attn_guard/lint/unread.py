"""Which results of a function's calls nothing reads afterwards."""

from __future__ import annotations

from collections.abc import Iterator

from attn_guard.lint import nodes as cst

_SIMPLE = (cst.Assign, cst.AnnAssign, cst.Expr)


def is_unread(body: cst.BaseSuite, call: cst.CSTNode) -> bool:
    """Whether the result of a call in a function's body is thrown away, or only kept in names that nothing reads."""
    path = _path(body, call)
    statement = next((node for node in reversed(path) if isinstance(node, _SIMPLE)), None)
    if statement is None or not _is_taken_whole(statement.value, call):
        return False
    if isinstance(statement, cst.Expr):
        return True
    targets = [target.target for target in statement.targets] if isinstance(statement, cst.Assign) else []
    names = _names(targets[0]) if len(targets) == 1 else None
    loops = any(isinstance(node, cst.For | cst.While) for node in path)
    return names is not None and all(not _is_read(body, statement, name, loops) for name in names)


def _path(node: cst.CSTNode, wanted: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes from one down to another; empty where it does not hold it."""
    if node is wanted:
        return [node]
    for child in node.children:
        below = _path(child, wanted)
        if below:
            return [node, *below]
    return []


def _is_taken_whole(value: cst.BaseExpression | None, call: cst.CSTNode) -> bool:
    """Whether a statement's value is the call itself, or a part that is picked out of its result."""
    while isinstance(value, cst.Subscript | cst.Attribute):
        value = value.value
    return value is call


def _names(target: cst.BaseExpression) -> list[str] | None:
    """The names of a target; None where it holds anything else, such as an attribute."""
    if isinstance(target, cst.Name):
        return [target.value]
    if not isinstance(target, cst.Tuple | cst.List):
        return None
    parts = [_names(element.value) for element in target.elements]
    return None if None in parts else [name for part in parts if part for name in part]


def _is_read(body: cst.BaseSuite, statement: cst.CSTNode, name: str, loops: bool) -> bool:
    """Whether a name may be read after a statement, before it gets another value for sure."""
    if name == "_":
        return False
    after = loops
    for held, reads, surely in _uses(body, name, True):
        if held is statement:
            after = True
        elif after and reads:
            return True
        elif after and surely and not loops:
            return False
    return False


def _uses(node: cst.CSTNode, name: str, surely: bool) -> Iterator[tuple[cst.CSTNode, bool, bool]]:
    """(statement, whether it reads the name, whether it surely gives it another value), in the order of running."""
    if isinstance(node, cst.Assign | cst.AnnAssign):
        targets = [target.target for target in node.targets] if isinstance(node, cst.Assign) else [node.target]
        plain = any(name in (_names(target) or ()) for target in targets)
        taken = [node.value, *(target for target in targets if _names(target) is None)]
        reads = any(part is not None and part.holds_name(name) for part in taken)
        yield node, reads, plain and surely
    elif isinstance(node, cst.Name):
        yield node, node.value == name, False
    else:
        certain = surely and not isinstance(
            node, cst.If | cst.For | cst.While | cst.Try | cst.Match | cst.FunctionDef | cst.Lambda
        )
        for child in node.children:
            yield from _uses(child, name, certain)
