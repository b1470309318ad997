"""Makes syntax trees of what `ast` reads: see `nodes.py`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attn_guard.lint import nodes as cst
from attn_guard.lint.nodes import Span


def module(text: str) -> cst.Module:
    """The tree of a source text. Raises SyntaxError and what else `ast.parse` raises."""
    tree = ast.parse(text)
    return cst.Module(Span(1, 0, 1, 0), [_of(node) for node in tree.body])


def expression(text: str) -> cst.BaseExpression:
    """The tree of a text that is one expression. Raises SyntaxError."""
    return _expression(ast.parse(text, mode="eval").body)


def _of(node: ast.AST) -> Any:
    return _RULES.get(type(node), _other)(node)


_expression: Callable[[ast.expr], cst.BaseExpression] = _of


def _maybe(node: ast.AST | None) -> Any:
    return None if node is None else _of(node)


def _all(nodes: Sequence[ast.AST]) -> list[Any]:
    return [_of(node) for node in nodes]


# expressions


def _name(node: ast.Name) -> cst.Name:
    return cst.Name(node, node.id)


def _constant(node: ast.Constant) -> cst.BaseExpression:
    return _CONSTANTS[type(node.value)](node, node.value)


_CONSTANTS: dict[type, Callable[[ast.Constant, Any], cst.BaseExpression]] = {
    bool: lambda node, value: cst.Name(node, str(value)),
    type(None): lambda node, value: cst.Name(node, "None"),
    type(...): lambda node, value: cst.Ellipsis(node),
    int: cst.Integer,
    float: cst.Float,
    complex: cst.Imaginary,
    str: cst.SimpleString,
    bytes: cst.SimpleString,
}


def _joined_string(node: ast.JoinedStr) -> cst.FormattedString:
    return cst.FormattedString(node, [_formatted(part) for part in node.values if isinstance(part, ast.FormattedValue)])


def _formatted(node: ast.FormattedValue) -> cst.FormattedStringExpression:
    spec = _joined_string(node.format_spec).parts if isinstance(node.format_spec, ast.JoinedStr) else []
    return cst.FormattedStringExpression(node, _of(node.value), spec)


def _attribute(node: ast.Attribute) -> cst.Attribute:
    end, last = node.end_col_offset or 0, node.end_lineno or 0
    span = Span(last, end - _width(node.attr), last, end, node.attr)
    return cst.Attribute(node, _of(node.value), cst.Name(span, node.attr))


def _width(name: str) -> int:
    return len(name) if name.isascii() else len(name.encode())


def _call(node: ast.Call) -> cst.Call:
    return cst.Call(node, _of(node.func), _arguments(node.args, node.keywords))


def _arguments(args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> list[cst.Arg]:
    made = [
        cst.Arg(arg, "*", None, _of(arg.value)) if isinstance(arg, ast.Starred) else cst.Arg(arg, "", None, _of(arg))
        for arg in args
    ]
    named = [cst.Arg(word, "**" if word.arg is None else "", _keyword(word), _of(word.value)) for word in keywords]
    if not (made and named):
        return made or named
    return sorted((*made, *named), key=lambda arg: (arg.at.lineno, arg.at.col_offset))  # `*args` may stand behind names


def _keyword(node: ast.keyword) -> cst.Name | None:
    return None if node.arg is None else _named(node, node.arg)


def _named(node: Any, name: str, offset: int = 0) -> cst.Name:
    """A name that stands so many bytes behind the start of a node."""
    start = node.col_offset + offset
    return cst.Name(Span(node.lineno, start, node.lineno, start + _width(name), name), name)


def _subscript(node: ast.Subscript) -> cst.Subscript:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) and node.slice.elts else [node.slice]
    return cst.Subscript(node, _of(node.value), [cst.SubscriptElement(part, _index(part)) for part in parts])


def _index(node: ast.expr) -> cst.BaseSlice:
    if isinstance(node, ast.Slice):
        return cst.Slice(node, _maybe(node.lower), _maybe(node.upper), _maybe(node.step))
    return cst.Index(node, _of(node.value if isinstance(node, ast.Starred) else node))


def _unary(node: ast.UnaryOp) -> cst.UnaryOperation:
    return cst.UnaryOperation(node, _OPERATORS[type(node.op)], _of(node.operand))


def _binary(node: ast.BinOp) -> cst.BinaryOperation:
    return cst.BinaryOperation(node, _of(node.left), _OPERATORS[type(node.op)], _of(node.right))


def _boolean(node: ast.BoolOp) -> cst.BaseExpression:
    left, *rest = _all(node.values)
    for right in rest:
        left = cst.BooleanOperation(node, left, _OPERATORS[type(node.op)], right)
    made: cst.BaseExpression = left
    return made


def _comparison(node: ast.Compare) -> cst.Comparison:
    targets = [
        cst.ComparisonTarget(right, _OPERATORS[type(op)], _of(right))
        for op, right in zip(node.ops, node.comparators, strict=True)
    ]
    return cst.Comparison(node, _of(node.left), targets)


def _conditional(node: ast.IfExp) -> cst.IfExp:
    return cst.IfExp(node, _of(node.body), _of(node.test), _of(node.orelse))


def _elements(nodes: Sequence[ast.expr]) -> list[cst.Element | cst.StarredElement]:
    return [
        cst.StarredElement(node, _of(node.value)) if isinstance(node, ast.Starred) else cst.Element(node, _of(node))
        for node in nodes
    ]


def _dict(node: ast.Dict) -> cst.Dict:
    return cst.Dict(
        node,
        [
            cst.StarredDictElement(value, _of(value)) if key is None else cst.DictElement(key, _of(key), _of(value))
            for key, value in zip(node.keys, node.values, strict=True)
        ],
    )


def _clauses(clauses: Sequence[ast.comprehension]) -> cst.CompFor:
    first, *rest = clauses
    ifs = [cst.CompIf(test, _of(test)) for test in first.ifs]
    return cst.CompFor(first.target, _of(first.target), _of(first.iter), ifs, _clauses(rest) if rest else None)


def _lambda(node: ast.Lambda) -> cst.Lambda:
    return cst.Lambda(node, _parameters(node, node.args), _of(node.body))


def _parameters(node: ast.AST, args: ast.arguments) -> cst.Parameters:
    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + [*args.defaults]
    params = [_parameter(arg, default) for arg, default in zip(plain, defaults, strict=True)]
    only = len(args.posonlyargs)
    return cst.Parameters(
        node,
        params[:only],
        params[only:],
        _parameter(args.vararg) if args.vararg else None,
        [_parameter(arg, default) for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)],
        _parameter(args.kwarg) if args.kwarg else None,
    )


def _parameter(arg: ast.arg, default: ast.expr | None = None) -> cst.Param:
    return cst.Param(arg, _named(arg, arg.arg), _maybe(arg.annotation), _maybe(default))


# statements


def _block(body: Sequence[ast.stmt]) -> cst.IndentedBlock:
    return cst.IndentedBlock(body[0], _all(body))


def _else(body: Sequence[ast.stmt]) -> cst.Else | None:
    return cst.Else(body[0], _block(body)) if body else None


def _if(node: ast.If) -> cst.If:
    after = node.orelse
    is_elif = len(after) == 1 and isinstance(after[0], ast.If) and after[0].col_offset == node.col_offset
    return cst.If(node, _of(node.test), _block(node.body), _of(after[0]) if is_elif else _else(after))


def _for(node: ast.For | ast.AsyncFor) -> cst.For:
    return cst.For(node, _of(node.target), _of(node.iter), _block(node.body), _else(node.orelse))


def _with(node: ast.With | ast.AsyncWith) -> cst.With:
    items = [cst.WithItem(item.context_expr, _of(item.context_expr), _as(item.optional_vars)) for item in node.items]
    return cst.With(node, items, _block(node.body))


def _as(name: ast.expr | None) -> cst.AsName | None:
    return cst.AsName(name, _of(name)) if name else None


def _try(node: ast.Try, kind: type[cst.Try] = cst.Try) -> cst.Try:
    handlers = [
        cst.ExceptHandler(
            handler,
            _maybe(handler.type),
            cst.AsName(handler, cst.Name(handler, handler.name)) if handler.name else None,
            _block(handler.body),
        )
        for handler in node.handlers
    ]
    return kind(node, _block(node.body), handlers, _else(node.orelse), _else(node.finalbody))


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> cst.FunctionDef:
    word = "def " if isinstance(node, ast.FunctionDef) else "async def "
    return cst.FunctionDef(
        node,
        [cst.Decorator(decorator, _of(decorator)) for decorator in node.decorator_list],
        _named(node, node.name, len(word)),
        _parameters(node, node.args),
        _maybe(node.returns),
        _block(node.body),
    )


def _class(node: ast.ClassDef) -> cst.ClassDef:
    decorators = [cst.Decorator(decorator, _of(decorator)) for decorator in node.decorator_list]
    name = _named(node, node.name, len("class "))
    return cst.ClassDef(node, decorators, name, _arguments(node.bases, node.keywords), _block(node.body))


def _match(node: ast.Match) -> cst.Match:
    return cst.Match(node, _of(node.subject), [_case(case) for case in node.cases])


def _case(case: ast.match_case) -> cst.MatchCase:
    return cst.MatchCase(case.body[0], [*_parts(case.pattern), *_parts(case.guard)], _block(case.body))


def _parts(node: ast.AST | None) -> Iterator[cst.CSTNode]:
    """What is named in something that has no nodes of its own here."""
    if isinstance(node, ast.expr):
        yield _of(node)
    elif node is not None:
        for _, value in ast.iter_fields(node):
            for part in value if isinstance(value, list) else (value,):
                if isinstance(part, ast.AST):
                    yield from _parts(part)
                elif isinstance(part, str):
                    yield cst.Name(node, part)


def _other(node: ast.AST) -> cst.CSTNode:
    return cst.Other(node, list(_parts(node)))


_OPERATORS: dict[type, cst.Operator] = {
    ast.Add: cst.Add(),
    ast.Sub: cst.Subtract(),
    ast.Mult: cst.Multiply(),
    ast.Div: cst.Divide(),
    ast.FloorDiv: cst.FloorDivide(),
    ast.Mod: cst.Modulo(),
    ast.Pow: cst.Power(),
    ast.MatMult: cst.MatrixMultiply(),
    ast.LShift: cst.LeftShift(),
    ast.RShift: cst.RightShift(),
    ast.BitAnd: cst.BitAnd(),
    ast.BitOr: cst.BitOr(),
    ast.BitXor: cst.BitXor(),
    ast.And: cst.And(),
    ast.Or: cst.Or(),
    ast.Not: cst.Not(),
    ast.USub: cst.Minus(),
    ast.UAdd: cst.Plus(),
    ast.Invert: cst.BitInvert(),
    ast.Eq: cst.Equal(),
    ast.NotEq: cst.NotEqual(),
    ast.Lt: cst.LessThan(),
    ast.LtE: cst.LessThanEqual(),
    ast.Gt: cst.GreaterThan(),
    ast.GtE: cst.GreaterThanEqual(),
    ast.Is: cst.Is(),
    ast.IsNot: cst.IsNot(),
    ast.In: cst.In(),
    ast.NotIn: cst.NotIn(),
}
_ASSIGNED: dict[type, cst.Operator] = {
    operator: getattr(cst, f"{type(made).__name__}Assign")()
    for operator, made in _OPERATORS.items()
    if issubclass(operator, ast.operator)
}
_RULES: dict[type, Callable[[Any], cst.CSTNode]] = {
    ast.Name: _name,
    ast.Constant: _constant,
    ast.JoinedStr: _joined_string,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.Subscript: _subscript,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.BoolOp: _boolean,
    ast.Compare: _comparison,
    ast.IfExp: _conditional,
    ast.NamedExpr: lambda node: cst.NamedExpr(node, _of(node.target), _of(node.value)),
    ast.Await: lambda node: cst.Await(node, _of(node.value)),
    ast.Yield: lambda node: cst.Yield(node, _maybe(node.value)),
    ast.YieldFrom: lambda node: cst.Yield(node, cst.From(node, _of(node.value))),
    ast.Tuple: lambda node: cst.Tuple(node, _elements(node.elts)),
    ast.List: lambda node: cst.List(node, _elements(node.elts)),
    ast.Set: lambda node: cst.Set(node, _elements(node.elts)),
    ast.Dict: _dict,
    ast.ListComp: lambda node: cst.ListComp(node, _of(node.elt), _clauses(node.generators)),
    ast.SetComp: lambda node: cst.SetComp(node, _of(node.elt), _clauses(node.generators)),
    ast.GeneratorExp: lambda node: cst.GeneratorExp(node, _of(node.elt), _clauses(node.generators)),
    ast.DictComp: lambda node: cst.DictComp(node, _of(node.key), _of(node.value), _clauses(node.generators)),
    ast.Lambda: _lambda,
    ast.Expr: lambda node: cst.Expr(node, _of(node.value)),
    ast.Assign: lambda node: cst.Assign(
        node, [cst.AssignTarget(target, _of(target)) for target in node.targets], _of(node.value)
    ),
    ast.AnnAssign: lambda node: cst.AnnAssign(node, _of(node.target), _of(node.annotation), _maybe(node.value)),
    ast.AugAssign: lambda node: cst.AugAssign(node, _of(node.target), _ASSIGNED[type(node.op)], _of(node.value)),
    ast.Return: lambda node: cst.Return(node, _maybe(node.value)),
    ast.Raise: lambda node: cst.Raise(node, _maybe(node.exc), _maybe(node.cause)),
    ast.Assert: lambda node: cst.Assert(node, _of(node.test), _maybe(node.msg)),
    ast.Pass: lambda node: cst.Pass(node),
    ast.Continue: lambda node: cst.Continue(node),
    ast.Break: lambda node: cst.Break(node),
    ast.If: _if,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: lambda node: cst.While(node, _of(node.test), _block(node.body), _else(node.orelse)),
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.TryStar: lambda node: _try(node, cst.TryStar),
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Match: _match,
}
