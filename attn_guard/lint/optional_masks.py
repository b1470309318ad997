"""Masks of a module itself that are only joined to one that the caller may leave out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from attn_guard.lint import names
from attn_guard.lint import nodes as cst

_OWN_MASK = re.compile(r"mask|causal|tril|triu|future|subsequent|look_?ahead", re.IGNORECASE)


def lost_without_caller(function: cst.FunctionDef, text: str) -> Iterator[tuple[cst.CSTNode, str, str]]:
    """``if mask is not None: mask = mask & causal`` and no other use of ``causal``: the statement, and both names.

    ``text`` is the source of the function; what it does not hold is not searched for.
    """
    for given in _optional_masks(function):
        if f"{given} is not None" not in text:
            continue
        for branch in _ifs(function.body):
            if branch.orelse is None and _asks_for(branch.test, given):
                for statement, own in _joins(branch.body, given):
                    if not _is_made(branch.body, own) and not any(_reads(function.body, own, branch)):
                        yield statement, own, given


def _optional_masks(function: cst.FunctionDef) -> Iterator[str]:
    for param in (*function.params.params, *function.params.kwonly_params):
        default = param.default
        if names.is_mask(param.name.value) and isinstance(default, cst.Name) and default.value == "None":
            yield param.name.value


def _ifs(node: cst.CSTNode) -> Iterator[cst.If]:
    if isinstance(node, cst.If):
        yield node
    for child in node.children:
        yield from _ifs(child)


def _asks_for(test: cst.BaseExpression, name: str) -> bool:
    return cst.code(test) == f"{name} is not None"


def _joins(node: cst.CSTNode, given: str) -> Iterator[tuple[cst.CSTNode, str]]:
    """Statements that join another mask to the given one, and the name of that other mask."""
    if isinstance(node, cst.Assign | cst.AugAssign):
        targets = [target.target for target in node.targets] if isinstance(node, cst.Assign) else [node.target]
        used = set(_dotted_names(node.value)) | ({given} if isinstance(node, cst.AugAssign) else set())
        if given in used and any(isinstance(target, cst.Name) and target.value == given for target in targets):
            yield from ((node, own) for own in sorted(used - {given}) if _OWN_MASK.search(own))
        return
    for child in node.children:
        yield from _joins(child, given)


def _is_made(node: cst.CSTNode, name: str) -> bool:
    """Whether a name is given its value here: then it belongs to the mask that is given."""
    if isinstance(node, cst.Assign) and name in {_dotted(target.target) for target in node.targets}:
        return True
    return any(_is_made(child, name) for child in node.children)


def _reads(node: cst.CSTNode, name: str, apart_from: cst.If) -> Iterator[cst.CSTNode]:
    """Where a name is read outside a branch, but to ask whether there is one, and to make it another one."""
    if node is apart_from:
        return
    if isinstance(node, cst.Assign) and name in {_dotted(target.target) for target in node.targets}:
        return
    if _dotted(node) == name:
        yield node
    skipped = node.test if isinstance(node, cst.If | cst.IfExp | cst.Assert) else None
    for child in node.children:
        if child is not skipped:
            yield from _reads(child, name, apart_from)


def _dotted_names(node: cst.CSTNode) -> Iterator[str]:
    if name := _dotted(node):
        yield name
    for child in _inner(node) if not name else ():
        yield from _dotted_names(child)


def _inner(node: cst.CSTNode) -> Iterable[cst.CSTNode]:
    """What is in an expression, without names of attributes and of functions."""
    if isinstance(node, cst.Attribute):
        return (node.value,)
    if isinstance(node, cst.Call) and _dotted(node.func):
        return node.args
    return (node.value,) if isinstance(node, cst.Arg) else node.children


def _dotted(node: cst.CSTNode) -> str:
    """``self.mask`` or ``mask``, "" for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value == "self":
        return f"self.{node.attr.value}"
    return ""
