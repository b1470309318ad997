"""Which arguments of a function an expression in it is computed from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from attn_guard.lint import nodes as cst

Sources = dict[str, frozenset[str]]


class _Reached(Exception):
    """The walk has come to the node that it was sent for."""


def families(function: cst.FunctionDef | cst.Lambda, at: cst.CSTNode, expression: cst.BaseExpression) -> frozenset[str]:
    """The arguments that an expression is computed from, where ``at`` stands; by the first word of their names.

    ``src``, ``src_lengths`` and ``src_key_padding_mask`` speak of one input.
    """
    return frozenset(name.partition("_")[0] for name in _used(expression, _before(function, at)))


def _before(function: cst.FunctionDef | cst.Lambda, at: cst.CSTNode) -> Sources:
    params = function.params
    known = {param.name.value: frozenset((param.name.value,)) for param in (*params.params, *params.kwonly_params)}
    known.pop("self", None)
    with suppress(_Reached):
        _follow(function.body, at, known, certain=True)
    return known


def _follow(node: cst.CSTNode, at: cst.CSTNode, known: Sources, *, certain: bool) -> None:
    """Goes through statements in their order; what only may happen adds to what a name stands for."""
    if node is at:
        raise _Reached
    for child in node.children:
        _follow(child, at, known, certain=certain and not isinstance(node, cst.If | cst.For | cst.While | cst.Try))
    if isinstance(node, cst.Assign):
        for target in node.targets:
            _assign(target.target, node.value, known, certain=certain)
    elif isinstance(node, cst.AnnAssign | cst.AugAssign) and node.value is not None:
        _assign(node.target, node.value, known, certain=certain and isinstance(node, cst.AnnAssign))


def _assign(target: cst.BaseExpression, value: cst.BaseExpression, known: Sources, *, certain: bool) -> None:
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple) and len(target.elements) == len(value.elements):
        pairs = [(left.value, _used(right, known)) for left, right in zip(target.elements, value.elements, strict=True)]
    else:
        pairs = [(target, _used(value, known))]
    for part, new in pairs:
        for name in _names(part):
            known[name] = new if certain else new | known.get(name, frozenset())


def _used(node: cst.CSTNode, known: Sources) -> frozenset[str]:
    return frozenset(source for name in _names(node) for source in known.get(name, ()))


def _names(node: cst.CSTNode) -> Iterator[str]:
    """Names that are read, without those of attributes and of arguments."""
    if isinstance(node, cst.Name):
        yield node.value
    inner = (node.value,) if isinstance(node, cst.Attribute | cst.Arg) else node.children
    for child in inner:
        yield from _names(child)
