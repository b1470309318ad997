"""What a constructor puts into attributes, and which of them stay behind when the module moves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attn_guard.lint import nodes as cst
from attn_guard.lint.regions import Class, Region

_PLACED = re.compile(r"device|cuda|Buffer|Parameter|\bnp\.|numpy")
_MOVES = re.compile(r"\.(?:to|type_as|cuda)\(|\.data\b")
_MOVES_ITSELF = re.compile(r"\bdef (?:_apply|to|cuda)\b")


def stays_behind(name: str, value: cst.BaseExpression, family: Sequence[Class]) -> bool:
    """Whether a tensor in a plain attribute is read by methods of a module, none of which takes it to a device."""
    if not any("Module" in base for cls in family for base in cls.bases):
        return False
    if any(_MOVES_ITSELF.search(cls.text) or _is_buffer(name, cls.text) for cls in family):
        return False
    if _PLACED.search(cst.code(value)):
        return False
    methods = [method for cls in family for method in cls.methods.values() if method.name != "__init__"]
    readers = [method.text for method in methods if re.search(rf"\bself\.{name}\b", method.text)]
    return bool(readers) and not any(_MOVES.search(text) or _sets(name, text) for text in readers)


def _is_buffer(name: str, text: str) -> bool:
    return re.search(rf"register_buffer\(\s*[\"']{name}[\"']", text) is not None


def _sets(name: str, text: str) -> bool:
    """Whether a method puts another tensor into the attribute, which may then be where it is needed."""
    return re.search(rf"\bself\.{name}\s*(?::[^=\n]+)?=[^=]", text) is not None


def assigned(constructor: Region) -> Iterator[tuple[cst.Attribute, cst.BaseExpression]]:
    """``self.name = value``, the first for each name."""
    seen: set[str] = set()
    for target, value in _assignments(constructor.tree):
        match target, value:
            case cst.Attribute(value=cst.Name("self")), cst.BaseExpression() if target.attr.value not in seen:
                seen.add(target.attr.value)
                yield target, value


def _assignments(node: cst.CSTNode | None) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression | None]]:
    """Targets and values, in the order of the source."""
    if isinstance(node, cst.Assign):
        yield from ((target.target, node.value) for target in node.targets)
    elif isinstance(node, cst.AnnAssign):
        yield node.target, node.value
    elif node is not None:
        for child in node.children:
            yield from _assignments(child)
