"""The nodes of a syntax tree, named and shaped as libcst has them, without what is between the words.

They are made by `ast`, which reads a source ten times faster than libcst (`building.py`); libcst itself is asked only
where text is changed, and for syntax that is newer than the interpreter (`newer_syntax.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple, dataclass_transform


class Span(NamedTuple):
    """Where a node is in the text that was parsed, and its source; columns count bytes, from 0."""

    lineno: int
    col_offset: int
    end_lineno: int
    end_col_offset: int
    text: str = ""


@dataclass_transform(eq_default=False)
class _Kind(type):
    """Gives a class slots for what it declares, and a constructor that takes them in this order.

    `dataclasses` does the same and more, and takes ten times as long, which every start would wait for.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> _Kind:
        own = tuple(field for field in space.get("__annotations__", ()) if field != "__match_args__")
        fields = (*getattr(bases[0], "__match_args__", ()), *own) if bases else ()
        if own:
            everything = ("at", *fields)
            stored = "; ".join(f"self.{field} = {field}" for field in everything)
            exec(f"def __init__(self, {', '.join(everything)}): {stored}", {}, space)
        return super().__new__(cls, name, bases, {**space, "__slots__": own, "__match_args__": fields})


class CSTNode(metaclass=_Kind):
    """A node. ``at`` is where it stands: the node of `ast` that it was made of, or a span."""

    __match_args__: ClassVar[tuple[str, ...]]
    at: Any

    @property
    def children(self) -> list[CSTNode]:
        """The nodes that it is made of, in the order of the source."""
        found: list[CSTNode] = []
        for name in self.__match_args__:
            value = getattr(self, name)
            if isinstance(value, CSTNode):
                found.append(value)
            elif value.__class__ is list:
                found.extend(value)
        return found

    def names(self) -> Iterator[Name]:
        """Every name in it, itself included, in the order of the source."""
        waiting: list[CSTNode] = [self]
        while waiting:
            node = waiting.pop()
            if isinstance(node, Name):
                yield node
            else:
                waiting.extend(reversed(node.children))

    def holds_name(self, name: str) -> bool:
        """Whether a name stands in it, be it that of an attribute or of an argument."""
        return any(found.value == name for found in self.names())

    def deep_equals(self, other: CSTNode) -> bool:
        """Whether two nodes are written alike, apart from spaces and comments."""
        return type(self) is type(other) and all(
            _equal(getattr(self, name), getattr(other, name)) for name in self.__match_args__
        )


def code(node: CSTNode) -> str:
    """The source of a node, with spaces and quotes as Python itself would write them."""
    return ast.unparse(node.at) if isinstance(node.at, ast.AST) else str(node.at.text)


def _equal(one: object, other: object) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one.deep_equals(other) if isinstance(one, CSTNode) and isinstance(other, CSTNode) else one == other


class BaseExpression(CSTNode): ...


class BaseString(BaseExpression): ...


class BaseStatement(CSTNode): ...


class BaseSmallStatement(BaseStatement): ...


class BaseSlice(CSTNode): ...


class BaseElement(CSTNode):
    value: BaseExpression


class BaseSuite(CSTNode):
    body: list[BaseStatement]


# operators are no nodes: nobody asks where they stand


class Operator:
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class Add(Operator): ...


class Subtract(Operator): ...


class Multiply(Operator): ...


class Divide(Operator): ...


class FloorDivide(Operator): ...


class Modulo(Operator): ...


class Power(Operator): ...


class MatrixMultiply(Operator): ...


class LeftShift(Operator): ...


class RightShift(Operator): ...


class BitAnd(Operator): ...


class BitOr(Operator): ...


class BitXor(Operator): ...


class AddAssign(Operator): ...


class SubtractAssign(Operator): ...


class MultiplyAssign(Operator): ...


class DivideAssign(Operator): ...


class FloorDivideAssign(Operator): ...


class ModuloAssign(Operator): ...


class PowerAssign(Operator): ...


class MatrixMultiplyAssign(Operator): ...


class LeftShiftAssign(Operator): ...


class RightShiftAssign(Operator): ...


class BitAndAssign(Operator): ...


class BitOrAssign(Operator): ...


class BitXorAssign(Operator): ...


class And(Operator): ...


class Or(Operator): ...


class Not(Operator): ...


class Minus(Operator): ...


class Plus(Operator): ...


class BitInvert(Operator): ...


class Equal(Operator): ...


class NotEqual(Operator): ...


class LessThan(Operator): ...


class LessThanEqual(Operator): ...


class GreaterThan(Operator): ...


class GreaterThanEqual(Operator): ...


class Is(Operator): ...


class IsNot(Operator): ...


class In(Operator): ...


class NotIn(Operator): ...


# expressions


class Name(BaseExpression):
    value: str


class Integer(BaseExpression):
    evaluated_value: int

    @property
    def value(self) -> str:
        return str(self.evaluated_value)


class Float(BaseExpression):
    evaluated_value: float


class Imaginary(BaseExpression):
    evaluated_value: complex


class Ellipsis(BaseExpression): ...  # noqa: A001


class SimpleString(BaseString):
    evaluated_value: str | bytes


class FormattedStringExpression(CSTNode):
    expression: BaseExpression
    format_spec: list[FormattedStringExpression]


class FormattedString(BaseString):
    parts: list[FormattedStringExpression]


class Attribute(BaseExpression):
    value: BaseExpression
    attr: Name


class Arg(CSTNode):
    star: str
    keyword: Name | None
    value: BaseExpression


class Call(BaseExpression):
    func: BaseExpression
    args: list[Arg]


class Index(BaseSlice):
    value: BaseExpression


class Slice(BaseSlice):
    lower: BaseExpression | None
    upper: BaseExpression | None
    step: BaseExpression | None


class SubscriptElement(CSTNode):
    slice: BaseSlice


class Subscript(BaseExpression):
    value: BaseExpression
    slice: list[SubscriptElement]


class UnaryOperation(BaseExpression):
    operator: Operator
    expression: BaseExpression


class BinaryOperation(BaseExpression):
    left: BaseExpression
    operator: Operator
    right: BaseExpression


class BooleanOperation(BaseExpression):
    left: BaseExpression
    operator: Operator
    right: BaseExpression


class ComparisonTarget(CSTNode):
    operator: Operator
    comparator: BaseExpression


class Comparison(BaseExpression):
    left: BaseExpression
    comparisons: list[ComparisonTarget]


class IfExp(BaseExpression):
    body: BaseExpression
    test: BaseExpression
    orelse: BaseExpression


class NamedExpr(BaseExpression):
    target: BaseExpression
    value: BaseExpression


class Await(BaseExpression):
    expression: BaseExpression


class From(CSTNode):
    item: BaseExpression


class Yield(BaseExpression):
    value: BaseExpression | From | None


class Element(BaseElement): ...


class StarredElement(BaseElement): ...


class Tuple(BaseExpression):
    elements: list[Element | StarredElement]


class List(BaseExpression):
    elements: list[Element | StarredElement]


class Set(BaseExpression):
    elements: list[Element | StarredElement]


class DictElement(CSTNode):
    key: BaseExpression
    value: BaseExpression


class StarredDictElement(CSTNode):
    value: BaseExpression


class Dict(BaseExpression):
    elements: list[DictElement | StarredDictElement]


class CompIf(CSTNode):
    test: BaseExpression


class CompFor(CSTNode):
    target: BaseExpression
    iter: BaseExpression
    ifs: list[CompIf]
    inner_for_in: CompFor | None


class ListComp(BaseExpression):
    elt: BaseExpression
    for_in: CompFor


class SetComp(BaseExpression):
    elt: BaseExpression
    for_in: CompFor


class GeneratorExp(BaseExpression):
    elt: BaseExpression
    for_in: CompFor


class DictComp(BaseExpression):
    key: BaseExpression
    value: BaseExpression
    for_in: CompFor


class Param(CSTNode):
    name: Name
    annotation: BaseExpression | None
    default: BaseExpression | None


class Parameters(CSTNode):
    posonly_params: list[Param]
    params: list[Param]
    star_arg: Param | None
    kwonly_params: list[Param]
    star_kwarg: Param | None

    @property
    def single(self) -> list[Param]:
        """Those that take one argument each: all but ``*args`` and ``**kwargs``."""
        return [*self.posonly_params, *self.params, *self.kwonly_params]


class Lambda(BaseExpression):
    params: Parameters
    body: BaseExpression


# statements


class Module(CSTNode):
    body: list[BaseStatement]


class IndentedBlock(BaseSuite): ...


class Other(BaseSmallStatement):
    """A statement that the readers have no word for."""

    parts: list[CSTNode]


class Expr(BaseSmallStatement):
    value: BaseExpression


class AssignTarget(CSTNode):
    target: BaseExpression


class Assign(BaseSmallStatement):
    targets: list[AssignTarget]
    value: BaseExpression


class AnnAssign(BaseSmallStatement):
    target: BaseExpression
    annotation: BaseExpression
    value: BaseExpression | None


class AugAssign(BaseSmallStatement):
    target: BaseExpression
    operator: Operator
    value: BaseExpression


class Return(BaseSmallStatement):
    value: BaseExpression | None


class Raise(BaseSmallStatement):
    exc: BaseExpression | None
    cause: BaseExpression | None


class Assert(BaseSmallStatement):
    test: BaseExpression
    msg: BaseExpression | None


class Pass(BaseSmallStatement): ...


class Continue(BaseSmallStatement): ...


class Break(BaseSmallStatement): ...


class Else(CSTNode):
    body: BaseSuite


class If(BaseStatement):
    test: BaseExpression
    body: BaseSuite
    orelse: If | Else | None


class For(BaseStatement):
    target: BaseExpression
    iter: BaseExpression
    body: BaseSuite
    orelse: Else | None


class While(BaseStatement):
    test: BaseExpression
    body: BaseSuite
    orelse: Else | None


class AsName(CSTNode):
    name: BaseExpression


class WithItem(CSTNode):
    item: BaseExpression
    asname: AsName | None


class With(BaseStatement):
    items: list[WithItem]
    body: BaseSuite


class ExceptHandler(CSTNode):
    type: BaseExpression | None
    name: AsName | None
    body: BaseSuite


class Try(BaseStatement):
    body: BaseSuite
    handlers: list[ExceptHandler]
    orelse: Else | None
    finalbody: Else | None


class TryStar(Try): ...


class MatchCase(CSTNode):
    parts: list[CSTNode]
    body: BaseSuite


class Match(BaseStatement):
    subject: BaseExpression
    cases: list[MatchCase]


class Decorator(CSTNode):
    decorator: BaseExpression


class FunctionDef(BaseStatement):
    decorators: list[Decorator]
    name: Name
    params: Parameters
    returns: BaseExpression | None
    body: BaseSuite


class ClassDef(BaseStatement):
    decorators: list[Decorator]
    name: Name
    args: list[Arg]
    body: BaseSuite
