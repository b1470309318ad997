"""How a gotcha mends the source that it blames: it says what to change in the expression, and gets the edits for it.

Only the characters of the part that changes are edited, so that comments and formatting stay as they are. What is not
certain gives no fix: a part that is not there, an argument hidden in ``*args``, text that is not where the tree says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import libcst as cst

from attn_guard.findings import Edit, Finding, Fix, Location

if TYPE_CHECKING:
    from attn_guard.gotchas.registry import MakeFix
    from attn_guard.lint.regions import Region, Source

_TIGHT = (cst.Attribute, cst.Subscript, cst.UnaryOperation)  # what binds closer than a product
_ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)
_PRODUCTS = ("matmul", "bmm")
_SIGNS: dict[type, str] = {cst.Multiply: "*", cst.Divide: "/", cst.Add: "+", cst.BitAnd: "&", cst.BitOr: "|"}
_NO_SPACE = cst.SimpleWhitespace("")
_MODULES = ("F", "nn", "torch")  # also where a star import brings them


def with_fix(finding: Finding, make: MakeFix | None, source: Source) -> Finding:
    """A finding with the fix that its gotcha has for it."""
    blamed = _blamed(finding, source, finding.location) if make else None
    if make is None or blamed is None:
        return finding
    fix = make(blamed)
    return replace(finding, fix=fix) if fix and fix.edits else finding


def _blamed(finding: Finding, source: Source, place: Location) -> Blamed | None:
    for region in source.regions:
        if region.is_parsed and region.line <= place.line <= region.line + region.text.count("\n"):
            node = region.expression_at(place)
            if node is not None:
                return Blamed(finding, source, region, node)
    return None


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
        return f"~{self.text}" if isinstance(self.node, _ATOMS) else f"~({self.text})"


@dataclass(frozen=True, slots=True)
class Blamed:
    """The expression that a finding blames, in its source. What it cannot be sure of, it answers with None."""

    finding: Finding
    source: Source
    region: Region
    node: cst.BaseExpression

    # what it is

    @property
    def related(self) -> Blamed | None:
        """The second place of the finding."""
        places = [place for place, _ in self.finding.related]
        return _blamed(self.finding, self.source, places[0]) if places else None

    @property
    def text(self) -> str:
        return self.source.between(self.region.location(self.node))

    def imports(self, name: str) -> bool:
        """Whether the file imports something under its own name, so that it may be written."""
        return self.source.imports.get(name) == name

    @property
    def is_layer(self) -> bool:
        """Whether it is a call of an attribute of the module, such as ``self.softmax(scores)``."""
        return isinstance(self.node, cst.Call) and _attribute_of_self(self.node.func) != ""

    @property
    def made(self) -> Blamed | None:
        """Where the constructor of the class makes the layer that is called."""
        name = _attribute_of_self(self.node.func) if isinstance(self.node, cst.Call) else ""
        constructor = self.region.owner.methods.get("__init__") if self.region.owner and name else None
        if constructor is None or constructor.tree is None:
            return None
        values = list(_assigned(constructor.tree, name))
        return Blamed(self.finding, self.source, constructor, values[0]) if len(values) == 1 else None

    @property
    def called(self) -> str:
        """Name of the function or method, if it is a call; else ""."""
        func = self.node.func if isinstance(self.node, cst.Call) else None
        if isinstance(func, cst.Attribute):
            return func.attr.value
        return func.value if isinstance(func, cst.Name) else ""

    @property
    def in_module(self) -> bool:
        """Whether ``self.training`` can be asked: it stands in a method, outside of inner functions."""
        params = self.region.tree.params.params if self.region.tree else ()
        inner = any(isinstance(node, cst.FunctionDef | cst.Lambda) for node in self._above(self.node))
        return bool(self.region.owner and params and params[0].name.value == "self" and not inner)

    def _above(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        above = self.region.parent(node)
        while above is not None and above is not self.region.tree:
            yield above
            above = self.region.parent(above)

    def argument(self, index: int, *names: str) -> Part | None:
        """An argument of the call by one of its names or by position; the receiver of a method is the first."""
        return self._part(self._argument(index, *names))

    def _argument(self, index: int, *names: str) -> cst.BaseExpression | None:
        call = self.node
        if not isinstance(call, cst.Call) or any(arg.star for arg in call.args):
            return None
        named = {arg.keyword.value: arg.value for arg in call.args if arg.keyword}
        plain = [arg.value for arg in call.args if not arg.keyword]
        if isinstance(call.func, cst.Attribute) and not self._is_of_module(call.func):
            plain = [call.func.value, *plain]
        by_name = next((named[name] for name in names if name in named), None)
        return by_name or (plain[index] if index < len(plain) else None)

    def _is_of_module(self, func: cst.Attribute) -> bool:
        """``torch.softmax`` or ``self.softmax``, and not ``scores.softmax``."""
        if _attribute_of_self(func):
            return True
        root: cst.BaseExpression = func.value
        while isinstance(root, cst.Attribute):
            root = root.value
        return isinstance(root, cst.Name) and (root.value in self.source.imports or root.value in _MODULES)

    @property
    def whole(self) -> Part | None:
        return self._part(self.node)

    @property
    def count(self) -> int:
        """The number of arguments that are written in the call."""
        return len(self.node.args) if isinstance(self.node, cst.Call) else 0

    @property
    def receiver(self) -> Part | None:
        """What a method is called on."""
        func = self.node.func if isinstance(self.node, cst.Call) else None
        is_method = isinstance(func, cst.Attribute) and not self._is_of_module(func)
        return self._part(func.value) if is_method and isinstance(func, cst.Attribute) else None

    def at(self, part: Part) -> Blamed:
        """A part of it, to be looked at in the same way."""
        return replace(self, node=part.node)

    @property
    def sides(self) -> tuple[Part, str, Part] | None:
        """Left side, operator and right side of ``a / b``, or another operation of two."""
        if not isinstance(self.node, cst.BinaryOperation):
            return None
        sign = _SIGNS.get(type(self.node.operator))
        left, right = self._part(self.node.left), self._part(self.node.right)
        return (left, sign, right) if left and sign and right else None

    @property
    def width(self) -> str:
        """The size that the blamed product of query and key sums over, such as "query.shape[-1]"; "" if not sure."""
        return self._width(self.node)

    def width_of(self, part: Part) -> str:
        """The same of a part: of a product, or of a name that the function assigns one to."""
        node = part.node
        if isinstance(node, cst.Name) and self.region.tree is not None:
            values = list(_assigned(self.region.tree, node.value))
            node = values[0] if values else node
        return self._width(node)

    def _width(self, node: cst.BaseExpression) -> str:
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.MatrixMultiply):
            return self._size(node.left, -1)
        blamed = Blamed(self.finding, self.source, self.region, node)
        first = blamed._argument(0, "input")
        if first is not None and blamed.called in _PRODUCTS:
            return self._size(first, -1)
        query = blamed._argument(1)
        if query is not None and isinstance(first, cst.SimpleString) and blamed.called == "einsum":
            axis = _contracted(str(first.evaluated_value))
            return self._size(query, axis) if axis is not None else ""
        return ""

    def _size(self, node: cst.BaseExpression, axis: int) -> str:
        part = self._part(node)
        return f"{part.text}.shape[{axis}]" if part and part.is_name else ""

    # how it changes

    def with_argument(self, index: int, name: str, text: str) -> Fix | None:
        """Another value for an argument of the call, which is added by its name where it is not given."""
        known = self._argument(index, name)
        if known is not None:
            return self.replacing(self._part(known), text)
        call = self.node
        if not isinstance(call, cst.Call) or any(arg.star for arg in call.args):
            return None
        if call.args:
            end = self._end(call.args[-1])
            return Fix((Edit(end, f", {name}={text}"),)) if self._holds(call.args[-1]) else None
        place = self.region.location(call)
        closing = replace(place, line=place.end_line, column=place.end_column - 1)
        return Fix((Edit(_start(closing), f"{name}={text}"),)) if self.source.between(closing) == ")" else None

    def without_argument(self, name: str) -> Fix | None:
        """The call without an argument that is given by name behind another one."""
        call = self.node
        names = [arg.keyword.value if arg.keyword else "" for arg in call.args] if isinstance(call, cst.Call) else []
        if not isinstance(call, cst.Call) or name not in names[1:]:
            return None
        index = names.index(name)
        before, gone = call.args[index - 1], call.args[index]
        if not (self._holds(before) and self._holds(gone)):
            return None
        start, end = self._end(before), self._end(gone)
        return Fix((Edit(replace(start, end_line=end.line, end_column=end.column), ""),))

    def with_operator(self, sign: str) -> Fix | None:
        """Another operator between the two sides, with a space on each side of it."""
        if not isinstance(self.node, cst.BinaryOperation) or self.sides is None:
            return None
        start, place = self._end(self.node.left), self._start(self.node.right)
        if (
            self.source.between(replace(start, end_line=place.line, end_column=place.column)).strip()
            not in _SIGNS.values()
        ):
            return None
        return Fix((Edit(replace(start, end_line=place.line, end_column=place.column), f" {sign} "),))

    def registered(self) -> Fix | None:
        """``self.register_buffer("name", value, persistent=False)`` in the place of ``self.name = value``.

        Where the name is set in one place only, behind the constructor of the module, which has to come first.
        """
        node, owner = self._assignment, self.region.owner
        name = _attribute_of_self(self.node)
        if node is None or len(node.targets) != 1 or owner is None or not name:
            return None
        set_once = len(re.findall(rf"self\.{name}\b[^=\n]*=(?!=)", owner.text)) == 1
        start = _start(self.region.location(node))
        before = self.region.text.split(f"self.{name}", 1)[0]
        if not set_once or "super()" not in before or _is_bracketed(node.value):
            return None
        value = self.region.location(node.value)
        head = replace(start, end_line=value.line, end_column=value.column)
        if re.fullmatch(rf"self\.{name}\s*=\s*", self.source.between(head)) is None or not self._holds(node.value):
            return None
        return Fix((Edit(head, f'self.register_buffer("{name}", '), Edit(_end(value), ", persistent=False)")))

    def renamed(self, name: str) -> Fix | None:
        """Another function or method with the same arguments."""
        func = self.node.func if isinstance(self.node, cst.Call) else None
        target = func.attr if isinstance(func, cst.Attribute) else func
        return self.replacing(self._part(target), name) if isinstance(target, cst.Name) else None

    def times(self, factor: str) -> Fix | None:
        """The whole expression times a factor."""
        if not factor or not self._holds(self.node):
            return None
        place, above = self.region.location(self.node), self.region.parent(self.node)
        tight = isinstance(above, _TIGHT) or (isinstance(above, cst.Call) and above.func is self.node)
        tight = tight or (isinstance(above, cst.BinaryOperation) and isinstance(above.operator, cst.Power))
        bare = tight and not self.node.lpar
        opening = (Edit(_start(place), "("),) if bare else ()
        return Fix((*opening, Edit(_end(place), f" * {factor}{')' if bare else ''}")))

    def after_receiver(self, text: str) -> Fix | None:
        """A method call put in between the receiver and the method that is called on it."""
        func = self.node.func if isinstance(self.node, cst.Call) else None
        if not isinstance(func, cst.Attribute) or self._is_of_module(func) or not self._holds(func.value):
            return None
        return Fix((Edit(self._end(func.value), text),))

    def followed_by(self, text: str) -> Fix | None:
        """A method call on the whole expression, which is a call itself."""
        if not isinstance(self.node, cst.Call) or self.node.lpar or not self._holds(self.node):
            return None
        return Fix((Edit(_end(self.region.location(self.node)), text),))

    def assigned_to(self, name: str) -> Fix | None:
        """A name for the value of a statement: of one that has none, or in the place of the one that it has."""
        above = self.region.parent(self.node)
        if isinstance(above, cst.Expr):
            start = _start(self.region.location(self.node))
            return Fix((Edit(start, f"{name} = "),)) if self.whole else None
        if isinstance(above, cst.Assign) and len(above.targets) == 1:
            return self.replacing(self._part(above.targets[0].target), name)
        return None

    def assigned_value(self) -> Part | None:
        """What is put into the blamed item: ``value`` in ``item[...] = value``."""
        return self._part(self._assignment.value) if self._assignment else None

    @property
    def _assignment(self) -> cst.Assign | None:
        """The statement that assigns to the blamed expression."""
        above = self.region.parent(self.node)
        statement = self.region.parent(above) if isinstance(above, cst.AssignTarget) else None
        return statement if isinstance(statement, cst.Assign) else None

    def replacing(self, part: Part | None, text: str) -> Fix | None:
        """Another text for a part."""
        return Fix((Edit(self.region.location(part.node), text),)) if part and part.text != text else None

    def all(self, *fixes: Fix | None) -> Fix | None:
        """One fix out of several, each of which is needed."""
        known = [fix for fix in fixes if fix is not None]
        if len(known) < len(fixes):
            return None
        return Fix(tuple(edit for fix in known for edit in fix.edits), all(fix.safe for fix in known))

    # where it is

    def _part(self, node: cst.BaseExpression | None) -> Part | None:
        return Part(node, self.source.between(self.region.location(node))) if node and self._holds(node) else None

    def _holds(self, node: cst.BaseExpression | cst.Arg) -> bool:
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

    def _start(self, node: cst.CSTNode) -> Location:
        place = _start(self.region.location(node))
        opening = sum(len(cst.Module([]).code_for_node(bracket)) for bracket in getattr(node, "lpar", ()))
        return replace(place, column=place.column - opening, end_column=place.end_column - opening)

    def _end(self, node: cst.CSTNode) -> Location:
        place = _end(self.region.location(node))
        closing = sum(len(cst.Module([]).code_for_node(bracket)) for bracket in getattr(node, "rpar", ()))
        return replace(place, column=place.column + closing, end_column=place.end_column + closing)


def _is_bracketed(node: cst.BaseExpression) -> bool:
    return bool(getattr(node, "lpar", None))


def _bare(node: cst.BaseExpression) -> cst.BaseExpression:
    return node.with_changes(lpar=(), rpar=()) if _is_bracketed(node) else node


def _start(place: Location) -> Location:
    return replace(place, end_line=place.line, end_column=place.column)


def _end(place: Location) -> Location:
    return replace(place, line=place.end_line, column=place.end_column)


def _attribute_of_self(node: cst.CSTNode) -> str:
    """The name in ``self.name``; "" for anything else."""
    is_own = isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value == "self"
    return node.attr.value if is_own and isinstance(node, cst.Attribute) else ""


def _assigned(node: cst.CSTNode, name: str) -> Iterator[cst.BaseExpression]:
    """Every value that is assigned to a name, or to an attribute ``self.name``, below a node."""
    if isinstance(node, cst.Assign):
        targets = (target.target for target in node.targets)
        if any(name in (_attribute_of_self(target), getattr(target, "value", "")) for target in targets):
            yield node.value
    for child in node.children:
        yield from _assigned(child, name)


def _contracted(equation: str) -> int | None:
    """The axis of the first operand that an equation of two sums over; None unless there is one such axis."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    first, comma, second = inputs.partition(",")
    if not (arrow and comma) or not (first + second + output).isalpha():
        return None
    axes = [axis for axis, letter in enumerate(first) if letter in second and letter not in output]
    return axes[0] - len(first) if len(axes) == 1 else None
