"""Where an expression stands in its source, to the character.

Nobody relies on a place before the text there is that of the node: the cells of a notebook may have moved it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import libcst as cst

from attn_guard.findings import Location

if TYPE_CHECKING:
    from attn_guard.lint.regions import Source
    from attn_guard.lint.written import Written

_ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)
_NO_SPACE = cst.SimpleWhitespace("")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the blamed source: its text, without parentheses around it, and what it is."""

    node: cst.BaseExpression
    text: str

    @property
    def is_number(self) -> bool:
        """Whether it is written as a number, with or without a sign, or as ``float("...")``."""
        node = self.node.expression if isinstance(self.node, cst.UnaryOperation) else self.node
        return isinstance(node, cst.Integer | cst.Float) or bool(re.fullmatch(r"float\(['\"][^'\"]+['\"]\)", self.text))

    @property
    def is_name(self) -> bool:
        """Whether it is a name or an attribute of one, which costs nothing to write again."""
        return re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", self.text) is not None

    @property
    def is_factor(self) -> bool:
        """Whether it is a number, or spells a scale: ``self.scale``, ``head_dim ** -0.5``, ``math.sqrt(d_k)``."""
        spelled = re.search(r"scal|sqrt|\*\*|\bd_?k\b|head_?dim", self.text)
        return self.is_number or (spelled is not None and "@" not in self.text)

    @property
    def bracketed(self) -> str:
        """It as the receiver of a method."""
        return self.text if isinstance(self.node, _ATOMS) else f"({self.text})"

    @property
    def is_plain(self) -> bool:
        """Whether it is a name, a number or a call, next to which any operator may stand."""
        return self.is_number or isinstance(self.node, _ATOMS)

    @property
    def is_product(self) -> bool:
        """Whether it is written as a product, or is a name or a call."""
        signs = cst.Multiply | cst.Divide | cst.MatrixMultiply
        is_binary = isinstance(self.node, cst.BinaryOperation) and isinstance(self.node.operator, signs)
        return is_binary or self.is_plain

    @property
    def inverted(self) -> str:
        """The opposite mask."""
        if isinstance(self.node, cst.UnaryOperation) and isinstance(self.node.operator, cst.BitInvert):
            return self.text.removeprefix("~").lstrip()
        return f"~{self.bracketed}"


@dataclass(frozen=True, slots=True)
class Span:
    """An expression and its place. What it cannot be sure of, it answers with None."""

    source: Source
    region: Written
    node: cst.BaseExpression

    @property
    def text(self) -> str:
        return self.source.between(self.region.location(self.node))

    @property
    def whole(self) -> Part | None:
        return self.part(self.node)

    def part(self, node: cst.BaseExpression | None) -> Part | None:
        return Part(node, self.source.between(self.region.location(node))) if node and self.holds(node) else None

    def holds(self, node: cst.BaseExpression | cst.Arg) -> bool:
        """Whether the text at the place of a node is that of the node."""
        place = self.region.location(node)
        if not place.end_line:
            return False
        bare: cst.CSTNode = (
            node.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=_NO_SPACE)
            if isinstance(node, cst.Arg)
            else _bare(node)
        )
        return self.source.between(place) == cst.Module([]).code_for_node(bare)

    def start(self, node: cst.CSTNode) -> Location:
        place = start_of(self.region.location(node))
        opening = sum(len(cst.Module([]).code_for_node(bracket)) for bracket in getattr(node, "lpar", ()))
        return replace(place, column=place.column - opening, end_column=place.end_column - opening)

    def end(self, node: cst.CSTNode) -> Location:
        place = end_of(self.region.location(node))
        closing = sum(len(cst.Module([]).code_for_node(bracket)) for bracket in getattr(node, "rpar", ()))
        return replace(place, column=place.column + closing, end_column=place.end_column + closing)


def is_bracketed(node: cst.BaseExpression) -> bool:
    return bool(getattr(node, "lpar", None))


def _bare(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.with_changes(lpar=(), rpar=()) if is_bracketed(node) else node


def start_of(place: Location) -> Location:
    return replace(place, end_line=place.line, end_column=place.column)


def end_of(place: Location) -> Location:
    return replace(place, line=place.end_line, column=place.end_column)
