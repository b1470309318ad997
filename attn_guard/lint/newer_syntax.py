"""Makes the same trees of what libcst reads: it knows syntax that is newer than the interpreter which runs this."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import libcst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from attn_guard.lint import nodes as cst

_NAMED_OTHERWISE: dict[type, type[cst.CSTNode]] = {
    libcst.Finally: cst.Else,
    libcst.SimpleStatementSuite: cst.IndentedBlock,
}
_PUT_IN = libcst.FormattedStringExpression


def module(text: str) -> cst.Module:
    """The tree of a source text. Raises `libcst.ParserSyntaxError` and RecursionError."""
    wrapper = MetadataWrapper(libcst.parse_module(text), unsafe_skip_copy=True)
    made = _Reading(text, wrapper.resolve(PositionProvider)).node(wrapper.module)
    assert isinstance(made, cst.Module)
    return made


class _Reading:
    """Goes through a tree of libcst, whose nodes have the names and the parts of ours, and more."""

    def __init__(self, text: str, places: Mapping[libcst.CSTNode, CodeRange]) -> None:
        self._text = text
        self._starts = [0, *(found.end() for found in re.finditer(r"\n", text)), len(text)]
        self._places = places

    def node(self, node: libcst.CSTNode) -> Any:
        if isinstance(node, libcst.Annotation):
            return self.node(node.annotation)
        if isinstance(node, libcst.ConcatenatedString):
            return self._joined(node)
        kind: Any = _NAMED_OTHERWISE.get(type(node)) or getattr(cst, type(node).__name__, cst.Other)
        if issubclass(kind, cst.Operator):
            return kind()
        return kind(self._span(node), *(self._field(node, name) for name in kind.__match_args__))

    def _field(self, node: Any, name: str) -> Any:
        if name == "parts":
            return self._formatted(node) if isinstance(node, libcst.FormattedString) else self._parts(node)
        if name == "format_spec":
            return self._value([part for part in node.format_spec or () if isinstance(part, _PUT_IN)])
        if isinstance(node, libcst.ClassDef) and name == "args":
            return self._value((*node.bases, *node.keywords))
        if isinstance(node, libcst.Raise) and name == "cause":
            return self._value(node.cause and node.cause.item)
        return self._value(getattr(node, name))

    def _value(self, value: Any) -> Any:
        if isinstance(value, libcst.CSTNode):
            return None if isinstance(value, libcst.ParamStar) else self.node(value)
        if isinstance(value, list | tuple):
            statements = [item.body if isinstance(item, libcst.SimpleStatementLine) else [item] for item in value]
            return [self.node(part) for line in statements for part in line]
        return None if isinstance(value, libcst.MaybeSentinel) else value

    def _parts(self, node: libcst.CSTNode) -> list[Any]:
        """The expressions in something that has no node of its own here."""
        if isinstance(node, libcst.MatchCase):
            return [part for side in (node.pattern, node.guard) if side for part in self._parts(side)]
        inner = ([self.node(n)] if isinstance(n, libcst.BaseExpression) else self._parts(n) for n in node.children)
        return [part for parts in inner for part in parts]

    def _joined(self, node: libcst.ConcatenatedString) -> cst.BaseString:
        whole = node.evaluated_value
        if whole is not None:
            return cst.SimpleString(self._span(node), whole)
        return cst.FormattedString(self._span(node), self._formatted(node))

    def _formatted(self, node: libcst.CSTNode) -> list[Any]:
        """What a string written in one or several pieces puts in."""
        if isinstance(node, libcst.FormattedString):
            return [self.node(part) for part in node.parts if isinstance(part, _PUT_IN)]
        sides = (node.left, node.right) if isinstance(node, libcst.ConcatenatedString) else ()
        return [part for side in sides for part in self._formatted(side)]

    def _span(self, node: libcst.CSTNode) -> cst.Span:
        place = self._places.get(node)
        if place is None:
            return cst.Span(1, 0, 1, 0)
        (first, left), (last, right) = ((at.line, at.column) for at in (place.start, place.end))
        source = self._text[self._starts[first - 1] + left : self._starts[last - 1] + right]
        return cst.Span(first, self._bytes(first, left), last, self._bytes(last, right), source)

    def _bytes(self, line: int, column: int) -> int:
        start = self._starts[line - 1]
        return len(self._text[start : start + column].encode())
