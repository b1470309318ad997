"""Which attributes of a module stay behind when it moves."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attn_guard.lint import nodes as cst
from attn_guard.lint.regions import Class

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
