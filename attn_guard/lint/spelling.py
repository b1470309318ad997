"""How an expression is spelled: what it calls and with which arguments, and what stands on its sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import libcst as cst

from attn_guard.lint.spans import Part, Span

_PRODUCTS = ("matmul", "bmm")
SIGNS: dict[type, str] = {cst.Multiply: "*", cst.Divide: "/", cst.Add: "+", cst.BitAnd: "&", cst.BitOr: "|"}
_LISTED = (cst.Element, cst.Tuple, cst.List, cst.IfExp)
_MODULES = ("F", "nn", "torch")  # also where a star import brings them


@dataclass(frozen=True, slots=True)
class Spelling(Span):
    """An expression in its source. What is not certain is None: a part that is not there, an argument in ``*args``."""

    def imports(self, name: str) -> bool:
        """Whether the file imports something under its own name, so that it may be written."""
        return self.source.imports.get(name) == name

    @property
    def is_layer(self) -> bool:
        """Whether it is a call of an attribute of the module, such as ``self.softmax(scores)``."""
        return isinstance(self.node, cst.Call) and attribute_of_self(self.node.func) != ""

    @property
    def made(self) -> Self | None:
        """Where the constructor of the class makes the layer that is called."""
        name = attribute_of_self(self.node.func) if isinstance(self.node, cst.Call) else ""
        constructor = self.region.owner.methods.get("__init__") if self.region.owner and name else None
        if constructor is None or constructor.written.tree is None:
            return None
        values = list(_assigned(constructor.written.tree, name))
        return replace(self, region=constructor.written, node=values[0]) if len(values) == 1 else None

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
        return self.part(self.given(index, *names))

    def given(self, index: int, *names: str) -> cst.BaseExpression | None:
        call = self.node
        if not isinstance(call, cst.Call) or any(arg.star for arg in call.args):
            return None
        named = {arg.keyword.value: arg.value for arg in call.args if arg.keyword}
        plain = [arg.value for arg in call.args if not arg.keyword]
        if isinstance(call.func, cst.Attribute) and not self.is_of_module(call.func):
            plain = [call.func.value, *plain]
        by_name = next((named[name] for name in names if name in named), None)
        return by_name or (plain[index] if index < len(plain) else None)

    def is_of_module(self, func: cst.Attribute) -> bool:
        """``torch.softmax`` or ``self.softmax``, and not ``scores.softmax``."""
        if attribute_of_self(func):
            return True
        root: cst.BaseExpression = func.value
        while isinstance(root, cst.Attribute):
            root = root.value
        return isinstance(root, cst.Name) and (root.value in self.source.imports or root.value in _MODULES)

    @property
    def count(self) -> int:
        """The number of arguments that are written in the call."""
        return len(self.node.args) if isinstance(self.node, cst.Call) else 0

    @property
    def receiver(self) -> Part | None:
        """What a method is called on."""
        func = self.node.func if isinstance(self.node, cst.Call) else None
        is_method = isinstance(func, cst.Attribute) and not self.is_of_module(func)
        return self.part(func.value) if is_method and isinstance(func, cst.Attribute) else None

    def at(self, part: Part) -> Self:
        """A part of it, to be looked at in the same way."""
        return replace(self, node=part.node)

    @property
    def sides(self) -> tuple[Part, str, Part] | None:
        """Left side, operator and right side of ``a / b``, or another operation of two."""
        if not isinstance(self.node, cst.BinaryOperation):
            return None
        sign = SIGNS.get(type(self.node.operator))
        left, right = self.part(self.node.left), self.part(self.node.right)
        return (left, sign, right) if left and sign and right else None

    @property
    def product(self) -> tuple[Part, Part] | None:
        """Both sides of ``a @ b``, ``torch.matmul(a, b)`` or ``a.bmm(b)``."""
        first = second = None
        if isinstance(self.node, cst.BinaryOperation) and isinstance(self.node.operator, cst.MatrixMultiply):
            first, second = self.part(self.node.left), self.part(self.node.right)
        elif self.called in _PRODUCTS:
            first, second = self.argument(0, "input"), self.argument(1, "other", "mat2")
        return (first, second) if first and second else None

    @property
    def scaled(self) -> tuple[Part, Part] | None:
        """A tensor and what it is scaled by: ``a * scale``, ``a / math.sqrt(head_dim)``, ``a.mul(scale)``."""
        first, sign, second = self.sides or (self.argument(0, "input"), self.called, self.argument(1, "other"))
        if first is None or second is None:
            return None
        if sign in ("/", "div") and second.is_factor and not first.is_factor:
            return first, second
        pairs = [(first, second), (second, first)] if sign in ("*", "mul") else []
        return next(((kept, factor) for kept, factor in pairs if factor.is_factor and not kept.is_factor), None)

    @property
    def untransposed(self) -> Part | None:
        """What ``a.transpose(-2, -1)``, ``a.mT`` and the like transpose."""
        if isinstance(self.node, cst.Attribute) and self.node.attr.value in ("T", "mT"):
            return self.part(self.node.value)
        return self.receiver if self.called in ("transpose", "swapaxes", "swapdims", "t") else None

    @property
    def target(self) -> str:
        """The name that the expression is assigned to; "" for none, or for several."""
        above = self.region.parent(self.node)
        target = above.targets[0].target if isinstance(above, cst.Assign) and len(above.targets) == 1 else None
        return target.value if isinstance(target, cst.Name) else ""

    @property
    def only_product(self) -> cst.Name | None:
        """Where the name that the expression is assigned to goes into a product, if that and returns are all that
        reads it later, and the product is not reached without passing here."""
        block = next((node for node in self._above(self.node) if isinstance(node, cst.IndentedBlock)), None)
        if not self.target or self.region.tree is None or block is None:
            return None
        last = self.region.location(self.node).end_line
        later = (name for name in _names(self.region.tree.body) if self.region.location(name).line > last)
        read = [name for name in later if name.value == self.target and not self._is_returned(name)]
        above = list(self._above(read[0])) if len(read) == 1 else []
        return read[0] if block in above and self._goes_into_a_product(read[0]) else None

    def _is_returned(self, name: cst.Name) -> bool:
        """Whether it is what a ``return`` gives, or one item of a tuple."""
        around = next((node for node in self._above(name) if not isinstance(node, _LISTED)), None)
        is_item = isinstance(self.region.parent(name), cst.Element)
        return isinstance(around, cst.Return) or (is_item and isinstance(around, cst.Assign))

    def _goes_into_a_product(self, name: cst.Name) -> bool:
        above = self.region.parent(name)
        call = self.region.parent(above) if isinstance(above, cst.Arg) else None
        if isinstance(call, cst.Call):
            return replace(self, node=call).called in (*_PRODUCTS, "einsum")
        return isinstance(above, cst.BinaryOperation) and isinstance(above.operator, cst.MatrixMultiply)

    def is_known_before(self, part: Part) -> bool:
        """Whether all names in a part stand for the same where this expression is: nothing in the function sets them
        here or later."""
        if self.region.tree is None:
            return False
        first = self.region.location(self.node).line
        later = {name.value for name in _set_in(self.region.tree) if self.region.location(name).line >= first}
        return not later & {name.value for name in _names(part.node)}

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
        blamed = replace(self, node=node)
        first = blamed.given(0, "input")
        if first is not None and blamed.called in _PRODUCTS:
            return self._size(first, -1)
        query = blamed.given(1)
        if query is not None and isinstance(first, cst.SimpleString) and blamed.called == "einsum":
            axis = _contracted(str(first.evaluated_value))
            return self._size(query, axis) if axis is not None else ""
        return ""

    def _size(self, node: cst.BaseExpression, axis: int) -> str:
        part = self.part(node)
        return f"{part.text}.shape[{axis}]" if part and part.is_name else ""

    def assigned_value(self) -> Part | None:
        """What is put into the blamed item: ``value`` in ``item[...] = value``."""
        return self.part(self.assignment.value) if self.assignment else None

    @property
    def assignment(self) -> cst.Assign | None:
        """The statement that assigns to the blamed expression."""
        above = self.region.parent(self.node)
        statement = self.region.parent(above) if isinstance(above, cst.AssignTarget) else None
        return statement if isinstance(statement, cst.Assign) else None


def attribute_of_self(node: cst.CSTNode) -> str:
    """The name in ``self.name``; "" for anything else."""
    is_own = isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value == "self"
    return node.attr.value if is_own and isinstance(node, cst.Attribute) else ""


def _assigned(node: cst.CSTNode, name: str) -> Iterator[cst.BaseExpression]:
    """Every value that is assigned to a name, or to an attribute ``self.name``, below a node."""
    if isinstance(node, cst.Assign):
        targets = (target.target for target in node.targets)
        if any(name in (attribute_of_self(target), getattr(target, "value", "")) for target in targets):
            yield node.value
    for child in node.children:
        yield from _assigned(child, name)


def _names(node: cst.CSTNode) -> Iterator[cst.Name]:
    """Every name in an expression, those of attributes left out."""
    if isinstance(node, cst.Name):
        yield node
    for child in (node.value,) if isinstance(node, cst.Attribute) else node.children:
        yield from _names(child)


def _set_in(node: cst.CSTNode) -> Iterator[cst.Name]:
    """Every name that a function gives a value to."""
    if isinstance(node, cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.NamedExpr | cst.For | cst.CompFor):
        yield from _names(node.target)
    elif isinstance(node, cst.AsName):
        yield from _names(node.name)
    for child in node.children:
        yield from _set_in(child)


def _contracted(equation: str) -> int | None:
    """The axis of the first operand that an equation of two sums over; None unless there is one such axis."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    first, comma, second = inputs.partition(",")
    if not (arrow and comma) or not (first + second + output).isalpha():
        return None
    axes = [axis for axis, letter in enumerate(first) if letter in second and letter not in output]
    return axes[0] - len(first) if len(axes) == 1 else None
