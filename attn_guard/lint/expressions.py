"""Gives every expression its value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attn_guard.lint import arithmetic, calls, layout, masks, modes, names, ops, positions, reshaping, rows, sizes
from attn_guard.lint import nodes as cst
from attn_guard.lint.indexing import parts_of
from attn_guard.lint.layers import item_of
from attn_guard.lint.orders import Order
from attn_guard.lint.place import Call, Place, integer
from attn_guard.lint.position_tables import with_positions
from attn_guard.lint.values import (
    UNKNOWN,
    Atom,
    Bound,
    Choice,
    Closure,
    Dotted,
    Filled,
    Flag,
    Instance,
    Layer,
    Mask,
    Meaning,
    Nothing,
    Positions,
    Role,
    Scalar,
    Sequence,
    Shape,
    Tensor,
    Text,
    Unknown,
    Value,
    join,
)

if TYPE_CHECKING:
    from attn_guard.lint.frame import Frame


def evaluate(frame: Frame, node: cst.CSTNode) -> Value:
    """The value of an expression."""
    rule = _RULES.get(type(node))
    if rule is not None:
        return rule(frame, node)
    for child in node.children:  # not understood, but a masked tensor inside may still be dropped or misread
        if isinstance(child, cst.BaseExpression):
            evaluate(frame, child)
    return UNKNOWN


def _name(frame: Frame, node: cst.Name) -> Value:
    if node.value in ("True", "False"):
        return Flag(node.value == "True")
    return Nothing() if node.value == "None" else frame.lookup(node.value)


def _number(frame: Frame, node: cst.Integer | cst.Float) -> Value:
    try:
        return Scalar(float(node.evaluated_value))
    except OverflowError:  # an integer of hundreds of digits
        return UNKNOWN


def _string(frame: Frame, node: cst.SimpleString) -> Value:
    content = node.evaluated_value
    return Text(content) if isinstance(content, str) else UNKNOWN


def _tuple(frame: Frame, node: cst.Tuple | cst.List) -> Value:
    items: list[Value] = []
    endless = False
    for element in node.elements:
        value = evaluate(frame, element.value)
        if isinstance(element, cst.StarredElement):
            if isinstance(value, Sequence) and not value.endless:
                items.extend(value.items)
                continue
            axes = value.tensor.axes if isinstance(value, Shape) and isinstance(value.tensor, Tensor) else None
            if axes is None:
                endless = True
            items.extend(axis or UNKNOWN for axis in axes or (UNKNOWN,))
            continue
        items.append(value)
    return Sequence(tuple(items), endless)


def _binary(frame: Frame, node: cst.BinaryOperation) -> Value:
    left, right = evaluate(frame, node.left), evaluate(frame, node.right)
    return operate(frame, node, type(node.operator), left, right)


def operate(frame: Frame, node: cst.CSTNode, operator: type, left: Value, right: Value) -> Value:
    """``left <operator> right``, and ``left <operator>= right``."""
    place = frame.place(node)
    if isinstance(left, Sequence) and isinstance(right, Sequence) and operator in (cst.Add, cst.AddAssign):
        return Sequence((*left.items, *right.items), left.endless or right.endless)
    if isinstance(left, Shape | Sequence) or isinstance(right, Shape | Sequence):
        return Sequence((UNKNOWN,), endless=True)
    rule = _OPERATORS.get(operator)
    result = rule(place, left, right) if rule else UNKNOWN
    return with_positions(frame, node, left, right, result) if operator in (cst.Add, cst.AddAssign) else result


_OPERATORS: dict[type, Callable[[Place, Value, Value], Value]] = {
    cst.Multiply: arithmetic.multiply,
    cst.MultiplyAssign: arithmetic.multiply,
    cst.Divide: arithmetic.divide,
    cst.DivideAssign: arithmetic.divide,
    cst.Add: arithmetic.add,
    cst.AddAssign: arithmetic.add,
    cst.Subtract: arithmetic.subtract,
    cst.SubtractAssign: arithmetic.subtract,
    cst.MatrixMultiply: arithmetic.matmul,
    cst.FloorDivide: arithmetic.floor_divide,
    cst.FloorDivideAssign: arithmetic.floor_divide,
    cst.Power: lambda place, left, right: arithmetic.power(left, right),
    cst.BitAnd: lambda place, left, right: arithmetic.both(place, left, right, either=False),
    cst.BitAndAssign: lambda place, left, right: arithmetic.both(place, left, right, either=False),
    cst.BitOr: lambda place, left, right: arithmetic.both(place, left, right, either=True),
    cst.BitOrAssign: lambda place, left, right: arithmetic.both(place, left, right, either=True),
}


def _unary(frame: Frame, node: cst.UnaryOperation) -> Value:
    value = evaluate(frame, node.expression)
    if isinstance(node.operator, cst.Minus):
        if isinstance(value, Scalar):
            return value.times(Scalar(-1.0))
        if isinstance(value, Unknown) and value.default is not None:
            return replace(value, default=-value.default)
        if isinstance(value, Tensor) and value.role is Role.ACTIVATION:
            return value
        return Filled(-value.number) if isinstance(value, Filled) else rows.alike(value)
    return arithmetic.invert(value) if isinstance(node.operator, cst.BitInvert) else UNKNOWN


def _comparison(frame: Frame, node: cst.Comparison) -> Value:
    left = evaluate(frame, node.left)
    if len(node.comparisons) != 1:
        return UNKNOWN
    right = evaluate(frame, node.comparisons[0].comparator)
    operator = node.comparisons[0].operator
    if isinstance(operator, cst.Equal | cst.NotEqual):
        return arithmetic.compare(frame.place(node), left, right, isinstance(operator, cst.Equal))
    symbol = _ORDERS.get(type(operator))
    result = arithmetic.ordered(frame.place(node), left, symbol, right) if symbol else UNKNOWN
    return replace(result, order=Order(node)) if symbol and isinstance(result, Unknown) else result


_ORDERS: dict[type, str] = {
    cst.LessThan: "<",
    cst.LessThanEqual: "<=",
    cst.GreaterThan: ">",
    cst.GreaterThanEqual: ">=",
}


def _conditional(frame: Frame, node: cst.IfExp) -> Value:
    evaluate(frame, node.test)
    with frame.walk.record.inside(node, 0):
        body = evaluate(frame, node.body)
    with frame.walk.record.inside(node, 1):
        orelse = evaluate(frame, node.orelse)
        return modes.only_in_training(node.test, body, orelse) or join(body, orelse)


def _boolean(frame: Frame, node: cst.BooleanOperation) -> Value:
    return join(evaluate(frame, node.left), evaluate(frame, node.right))


def _attribute(frame: Frame, node: cst.Attribute) -> Value:
    name = node.attr.value
    value = attribute(frame, evaluate(frame, node.value), name)
    is_rate = names.is_dropout_rate(name) and _belongs_to_the_module(frame, node.value)
    return modes.held(name, value) if is_rate else value


def _belongs_to_the_module(frame: Frame, node: cst.BaseExpression) -> bool:
    """Whether an attribute is one of something that the module holds, as in ``self.config.dropout``."""
    if not isinstance(node, cst.Attribute):
        return False
    while isinstance(node, cst.Attribute):
        node = node.value
    return isinstance(node, cst.Name) and isinstance(frame.lookup(node.value), Instance)


def attribute(frame: Frame, owner: Value, name: str) -> Value:
    """``owner.name``."""
    if isinstance(owner, Instance):
        return frame.walk.attribute(owner, name)
    if isinstance(owner, Dotted):
        return dotted_value(f"{owner.path}.{name}")
    if isinstance(owner, Choice):
        return named(name)
    if isinstance(owner, Layer) and name == "p" and "Dropout" in owner.kind:
        return modes.rate_of(owner)
    if name == "shape":
        return Shape(owner)
    if name in ("T", "mT", "mH") and isinstance(owner, Tensor):
        return reshaping.transpose_last(Call(frame.place(cst.Name(None, name)), (owner,)))
    if name == "data":
        return owner
    if isinstance(owner, Unknown) and owner.name == "finfo":
        return Scalar(masks.LOWEST if name == "min" else -masks.LOWEST) if name in ("min", "max") else UNKNOWN
    if isinstance(owner, Unknown):
        return Bound(owner, name) if name in ops.METHODS or name == "dtype" else named(name)
    return Bound(owner, name)


def named(name: str, *, parameter: bool = False) -> Value:
    """What a name that is not resolved stands for: a size where its name can only be one, else unknown."""
    size = names.size_called(name)
    return Scalar(powers=((Atom(name, size), 1.0),)) if size and not parameter else Unknown(name, parameter)


def dotted_value(path: str) -> Value:
    module, _, name = path.rpartition(".")
    if name == "inf" and module in ("math", "torch", "numpy"):
        return Scalar(float("inf"))
    return Dotted(path)


def _subscript(frame: Frame, node: cst.Subscript) -> Value:
    owner = evaluate(frame, node.value)
    if isinstance(owner, Positions):
        return positions.indexed(owner, node.slice)
    if isinstance(owner, Unknown) and owner.rows is False:
        owner = replace(owner, rows=True if rows.adds_column(node) else None)
    if isinstance(owner, Unknown) and not _is_key(frame, node):
        owner = arithmetic.as_mask(owner) or (replace(owner, timed=None) if owner.timed else owner)
    if isinstance(owner, Mask):
        return masks.sliced(owner, node.slice, [_upper_bound(frame, element.slice) for element in node.slice])
    if len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
        index = evaluate(frame, node.slice[0].slice.value)
        if integer(index) == 0 and isinstance(owner, Sequence) and isinstance(node.value, cst.Call):
            modes.note_left_behind(owner, frame.walk.record)
        return item(owner, index)
    if isinstance(owner, Shape | Sequence) and len(node.slice) == 1:
        return _slice(owner, frame, node.slice[0].slice)
    if isinstance(owner, Tensor):
        return parts_of(frame, node, owner)
    return owner


def _is_key(frame: Frame, node: cst.Subscript) -> bool:
    """Whether a subscript asks for an item by its name."""
    only = node.slice[0].slice if len(node.slice) == 1 else None
    return isinstance(only, cst.Index) and isinstance(evaluate(frame, only.value), Text)


def _upper_bound(frame: Frame, part: cst.BaseSlice) -> Value | None:
    return evaluate(frame, part.upper) if isinstance(part, cst.Slice) and part.upper else None


def item(owner: Value, index: Value) -> Value:
    """``owner[index]``."""
    at = integer(index)
    if isinstance(owner, Shape):
        return sizes.axis_size(owner.tensor, at)
    if isinstance(owner, Sequence):
        if owner.endless or at is None:
            return owner.items[0] if owner.items and owner.endless else UNKNOWN
        return owner.items[at] if -len(owner.items) <= at < len(owner.items) else UNKNOWN
    if isinstance(owner, Tensor):
        return layout.indexed(owner) if at is not None else replace(owner, axes=None, order=None, grid=None)
    if isinstance(owner, Layer):
        return item_of(owner)
    if isinstance(index, Text) and names.is_mask(index.text):
        return tokenizer_mask(index.text)
    if isinstance(index, Text):
        return Unknown(index.text)
    return owner if isinstance(owner, Mask | Filled | Unknown) else UNKNOWN


def tokenizer_mask(name: str) -> Value:
    """``batch["attention_mask"]``: what tokenizers return says 1 for tokens."""
    return Mask(Meaning.KEEPS, name=name, padding=True) if name == "attention_mask" else Unknown(name)


def _slice(owner: Shape | Sequence, frame: Frame, cut: cst.BaseSlice) -> Value:
    if isinstance(owner, Shape):
        axes = owner.tensor.axes if isinstance(owner.tensor, Tensor) else None
        upper = integer(evaluate(frame, cut.upper)) if isinstance(cut, cst.Slice) and cut.upper else None
        if axes is None and isinstance(cut, cst.Slice) and not (cut.lower or cut.step) and upper and upper > 0:
            return Sequence(tuple(sizes.axis_size(owner.tensor, index) for index in range(upper)))
        lower = integer(evaluate(frame, cut.lower)) if isinstance(cut, cst.Slice) and cut.lower else None
        if axes is None and isinstance(cut, cst.Slice) and not (cut.upper or cut.step) and lower and lower < 0:
            return Sequence(tuple(sizes.axis_size(owner.tensor, index) for index in range(lower, 0)))
        owner = Sequence(tuple(axis or UNKNOWN for axis in axes)) if axes else Sequence((UNKNOWN,), endless=True)
    if owner.endless or not isinstance(cut, cst.Slice) or cut.step:
        return owner
    lower, upper = (integer(evaluate(frame, bound)) if bound else None for bound in (cut.lower, cut.upper))
    if (cut.lower and lower is None) or (cut.upper and upper is None):
        return Sequence((UNKNOWN,), endless=True)
    return Sequence(owner.items[lower:upper])


def _comprehension(frame: Frame, node: cst.ListComp | cst.GeneratorExp | cst.SetComp) -> Value:
    clause = node.for_in
    over = evaluate(frame, clause.iter)
    items = items_of(over)
    results = []
    for value in items:
        frame.assign(clause.target, value)
        results.append(evaluate(frame, node.elt))
    return Sequence(tuple(results), endless=not isinstance(over, Sequence) or over.endless or bool(clause.ifs))


def items_of(value: Value) -> tuple[Value, ...]:
    """What a loop over a value meets; one item stands for all where there are many alike."""
    if isinstance(value, Sequence) and value.items:
        return value.items
    if isinstance(value, Layer) and value.children:
        return (value.children[0],)
    if isinstance(value, Tensor):
        return (layout.indexed(value),)
    return (UNKNOWN,)


def _lambda(frame: Frame, node: cst.Lambda) -> Value:
    return Closure(frame.region, node, frame.instance, frame.names)


def _starred(frame: Frame, node: cst.NamedExpr) -> Value:
    value = evaluate(frame, node.value)
    frame.assign(node.target, value)
    return value


def _call(frame: Frame, node: cst.Call) -> Value:
    return calls.evaluate_call(frame, node)


_RULES: dict[type, Callable[[Any, Any], Value]] = {
    cst.Name: _name,
    cst.Integer: _number,
    cst.Float: _number,
    cst.SimpleString: _string,
    cst.Tuple: _tuple,
    cst.List: _tuple,
    cst.BinaryOperation: _binary,
    cst.UnaryOperation: _unary,
    cst.Comparison: _comparison,
    cst.IfExp: _conditional,
    cst.BooleanOperation: _boolean,
    cst.Attribute: _attribute,
    cst.Subscript: _subscript,
    cst.ListComp: _comprehension,
    cst.GeneratorExp: _comprehension,
    cst.SetComp: _comprehension,
    cst.Lambda: _lambda,
    cst.NamedExpr: _starred,
    cst.Call: _call,
}
