"""How a gotcha mends the source that it blames: it says what to change in the expression, and gets the edits for it.

Only the characters of the part that changes are edited, so that comments and formatting stay as they are. What is not
certain gives no fix: a part that is not there, an argument hidden in ``*args``, text that is not where the tree says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import libcst as cst

from attn_guard.findings import Edit, Finding, Fix, Location
from attn_guard.lint.spans import Part, end_of, is_bracketed, start_of
from attn_guard.lint.spelling import SIGNS, Spelling, attribute_of_self

if TYPE_CHECKING:
    from attn_guard.gotchas.registry import MakeFix
    from attn_guard.lint.regions import Source

_TIGHT = (cst.Attribute, cst.Subscript, cst.UnaryOperation)  # what binds closer than a product


def with_fix(finding: Finding, make: MakeFix, source: Source) -> Finding:
    """A finding with the fix that its gotcha has for it."""
    blamed = _blamed(finding, source, finding.location)
    if blamed is None:
        return finding
    fix = make(blamed)
    return replace(finding, fix=fix) if fix and fix.edits else finding


def _blamed(finding: Finding, source: Source, place: Location) -> Blamed | None:
    for region in source.regions:
        if region.is_parsed and region.line <= place.line <= region.line + region.text.count("\n"):
            node = region.written.expression_at(place)
            if node is not None:
                return Blamed(source, region.written, node, finding)
    return None


@dataclass(frozen=True, slots=True)
class Blamed(Spelling):
    """The expression that a finding blames, and how it can be changed."""

    finding: Finding

    @property
    def related(self) -> Blamed | None:
        """The second place of the finding."""
        places = [place for place, _ in self.finding.related]
        return _blamed(self.finding, self.source, places[0]) if places else None

    def with_argument(self, index: int, name: str, text: str) -> Fix | None:
        """Another value for an argument of the call, which is added by its name where it is not given."""
        known = self.given(index, name)
        if known is not None:
            return self.replacing(self.part(known), text)
        call = self.node
        if not isinstance(call, cst.Call) or any(arg.star for arg in call.args):
            return None
        if call.args:
            end = self.end(call.args[-1])
            return Fix((Edit(end, f", {name}={text}"),)) if self.holds(call.args[-1]) else None
        place = self.region.location(call)
        closing = replace(place, line=place.end_line, column=place.end_column - 1)
        return Fix((Edit(start_of(closing), f"{name}={text}"),)) if self.source.between(closing) == ")" else None

    def with_option(self, name: str, text: str, positions: int) -> Fix | None:
        """Another value for an argument that is given by name; None where so many positions are filled that it may be
        one of them."""
        plain = sum(not arg.keyword for arg in self.node.args) if isinstance(self.node, cst.Call) else positions
        return self.with_argument(99, name, text) if plain < positions else None

    def with_keyword(self, name: str, other: str) -> Fix | None:
        """Another name for an argument that is given by name."""
        args = self.node.args if isinstance(self.node, cst.Call) else ()
        keyword = next((arg.keyword for arg in args if arg.keyword and arg.keyword.value == name), None)
        return self.replacing(self.part(keyword), other)

    def without_argument(self, name: str) -> Fix | None:
        """The call without an argument that is given by name behind another one."""
        call = self.node
        names = [arg.keyword.value if arg.keyword else "" for arg in call.args] if isinstance(call, cst.Call) else []
        if not isinstance(call, cst.Call) or name not in names[1:]:
            return None
        index = names.index(name)
        before, gone = call.args[index - 1], call.args[index]
        if not (self.holds(before) and self.holds(gone)):
            return None
        start, end = self.end(before), self.end(gone)
        return Fix((Edit(replace(start, end_line=end.line, end_column=end.column), ""),))

    def with_operator(self, sign: str) -> Fix | None:
        """Another operator between the two sides, with a space on each side of it."""
        if not isinstance(self.node, cst.BinaryOperation) or self.sides is None:
            return None
        start, place = self.end(self.node.left), self.start(self.node.right)
        if (
            self.source.between(replace(start, end_line=place.line, end_column=place.column)).strip()
            not in SIGNS.values()
        ):
            return None
        return Fix((Edit(replace(start, end_line=place.line, end_column=place.column), f" {sign} "),))

    def registered(self) -> Fix | None:
        """``self.register_buffer("name", value, persistent=False)`` in the place of ``self.name = value``.

        Where the name is set in one place only, behind the constructor of the module, which has to come first.
        """
        node, owner = self.assignment, self.region.owner
        name = attribute_of_self(self.node)
        if node is None or len(node.targets) != 1 or owner is None or not name:
            return None
        set_once = len(re.findall(rf"self\.{name}\b[^=\n]*=(?!=)", owner.text)) == 1
        start = start_of(self.region.location(node))
        before = self.region.text.split(f"self.{name}", 1)[0]
        if not set_once or "super()" not in before or is_bracketed(node.value):
            return None
        value = self.region.location(node.value)
        head = replace(start, end_line=value.line, end_column=value.column)
        if re.fullmatch(rf"self\.{name}\s*=\s*", self.source.between(head)) is None or not self.holds(node.value):
            return None
        return Fix((Edit(head, f'self.register_buffer("{name}", '), Edit(end_of(value), ", persistent=False)")))

    def renamed(self, name: str) -> Fix | None:
        """Another function or method with the same arguments."""
        func = self.node.func if isinstance(self.node, cst.Call) else None
        target = func.attr if isinstance(func, cst.Attribute) else func
        return self.replacing(self.part(target), name) if isinstance(target, cst.Name) else None

    def times(self, factor: str) -> Fix | None:
        """The whole expression times a factor."""
        if not factor or not self.holds(self.node):
            return None
        place, above = self.region.location(self.node), self.region.parent(self.node)
        tight = isinstance(above, _TIGHT) or (isinstance(above, cst.Call) and above.func is self.node)
        tight = tight or (isinstance(above, cst.BinaryOperation) and isinstance(above.operator, cst.Power))
        bare = tight and not self.node.lpar
        opening = (Edit(start_of(place), "("),) if bare else ()
        return Fix((*opening, Edit(end_of(place), f" * {factor}{')' if bare else ''}")))

    def after_receiver(self, text: str) -> Fix | None:
        """A method call put in between the receiver and the method that is called on it."""
        func = self.node.func if isinstance(self.node, cst.Call) else None
        if not isinstance(func, cst.Attribute) or self.is_of_module(func) or not self.holds(func.value):
            return None
        return Fix((Edit(self.end(func.value), text),))

    def followed_by(self, text: str) -> Fix | None:
        """A method call on the whole expression, which is a call itself."""
        if not isinstance(self.node, cst.Call) or self.node.lpar or not self.holds(self.node):
            return None
        return Fix((Edit(end_of(self.region.location(self.node)), text),))

    def assigned_to(self, name: str) -> Fix | None:
        """A name for the value of a statement: of one that has none, or in the place of the one that it has."""
        above = self.region.parent(self.node)
        if isinstance(above, cst.Expr):
            start = start_of(self.region.location(self.node))
            return Fix((Edit(start, f"{name} = "),)) if self.whole else None
        if isinstance(above, cst.Assign) and len(above.targets) == 1:
            return self.replacing(self.part(above.targets[0].target), name)
        return None

    def kept_apart(self, name: str) -> Fix | None:
        """Another name for the value of a statement, which only a product reads; what is returned is the value before.

        None where the name is taken, or where more reads the value.
        """
        read, above = self.only_product, self.region.parent(self.node)
        if read is None or not isinstance(above, cst.Assign) or re.search(rf"\b{name}\b", self.region.text):
            return None
        parts = (self.part(above.targets[0].target), self.part(read))
        return self.all(*(self.replacing(part, name) for part in parts))

    def replacing(self, part: Part | None, text: str) -> Fix | None:
        """Another text for a part."""
        return Fix((Edit(self.region.location(part.node), text),)) if part and part.text != text else None

    def all(self, *fixes: Fix | None) -> Fix | None:
        """One fix out of several, each of which is needed."""
        known = [fix for fix in fixes if fix is not None]
        if len(known) < len(fixes):
            return None
        return Fix(tuple(edit for fix in known for edit in fix.edits), all(fix.safe for fix in known))
