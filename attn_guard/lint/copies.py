"""Classes of masks whose copies lose what a causal subclass adds: ``return BlockMask(self.lengths)`` in ``to``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from attn_guard.lint import names
from attn_guard.lint import nodes as cst
from attn_guard.lint.regions import Class, Region

_MASK = re.compile(r"mask|bias", re.IGNORECASE)


def lossy(classes: Iterable[Class]) -> Iterator[tuple[Region, Class]]:
    """Methods that make an object of their own class by its name, each with a causal subclass that inherits it.

    A subclass counts that is causal by its name, where its base is not, and that has a method of its base anew.
    """
    known = {owner.name: owner for owner in classes}
    for derived in known.values():
        if _is_causal(derived.name) and _MASK.search(derived.name):
            for base in (known[name] for name in derived.bases if name in known and not _is_causal(name)):
                inherited = [method for name, method in base.methods.items() if name not in derived.methods]
                if len(inherited) < len(base.methods):
                    yield from ((one, derived) for one in inherited if f"return {base.name}(" in one.text)


def _is_causal(name: str) -> bool:
    return names.is_causal(name) or "triangular" in name.lower()


def copies(function: cst.FunctionDef, owner: str) -> Iterator[cst.Call]:
    """The calls that a function returns and that make an object of ``owner`` out of nothing but ``self``."""
    for statement in function.body.body:
        made = statement.value if isinstance(statement, cst.Return) else None
        if isinstance(made, cst.Call) and _is_name(made.func, owner) and _are_own(made.args):
            yield made


def _is_name(node: cst.BaseExpression, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _are_own(args: Sequence[cst.Arg]) -> bool:
    return bool(args) and all(_is_own(arg.value) for arg in args)


def _is_own(node: cst.BaseExpression) -> bool:
    """``self.lengths``, ``self.lengths.to(device)``."""
    while isinstance(node, cst.Attribute | cst.Call | cst.Subscript):
        node = node.func if isinstance(node, cst.Call) else node.value
    return _is_name(node, "self")
