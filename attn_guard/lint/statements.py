"""Walks statements: assignments, branches (both sides), loops (once) and returns."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Many

from attn_guard.anatomy import StepKind
from attn_guard.lint import calls, expressions, modes, ops, single_cells, sizes, softmax_count
from attn_guard.lint import nodes as cst
from attn_guard.lint.attributes import stays_behind
from attn_guard.lint.frame import Frame
from attn_guard.lint.record import Event, Trouble, last_step
from attn_guard.lint.values import (
    UNKNOWN,
    Closure,
    Draft,
    Flag,
    Mask,
    Nothing,
    Scalar,
    Tensor,
    Value,
    join_named,
)


def run_body(frame: Frame, body: cst.BaseSuite) -> None:
    """Walks statements until one ends the function or the loop body."""
    for statement in body.body:
        if frame.ended or frame.walk.budget <= 0:
            return
        if isinstance(statement, cst.BaseSmallStatement):
            _run_small(frame, statement)
        else:
            _run(frame, statement)


def _run_small(frame: Frame, node: cst.BaseSmallStatement | cst.CSTNode) -> None:
    frame.walk.budget -= 1
    if isinstance(node, cst.Assign):
        _assign(frame, node)
    elif isinstance(node, cst.AnnAssign) and node.value is not None:
        frame.assign(node.target, expressions.evaluate(frame, node.value))
    elif isinstance(node, cst.AugAssign):
        left = expressions.evaluate(frame, node.target)
        right = expressions.evaluate(frame, node.value)
        frame.assign(node.target, expressions.operate(frame, node, type(node.operator), left, right))
    elif isinstance(node, cst.Expr):
        _expression(frame, node.value)
    elif isinstance(node, cst.Return):
        frame.returned.append(expressions.evaluate(frame, node.value) if node.value else Nothing())
        frame.ended = True
    elif isinstance(node, cst.Raise | cst.Continue | cst.Break):
        frame.ended = True
    elif isinstance(node, cst.Assert):
        expressions.evaluate(frame, node.test)
        single_cells.learn(frame, node.test)


def _assign(frame: Frame, node: cst.Assign) -> None:
    value = expressions.evaluate(frame, node.value)
    for target in node.targets:
        frame.assign(target.target, value)
        frame.learn_axes(node.value, target.target)
        _note_plain_mask(frame, target.target, node.value, value)
    name = node.targets[0].target if len(node.targets) == 1 else None
    step = last_step(value)
    is_new = step is not None and step.node is node.value and step.kind is StepKind.MASK
    if isinstance(name, cst.Name) and isinstance(value, Tensor) and step and is_new:
        frame.masked[name.value] = step, value.core


def _note_plain_mask(frame: Frame, target: cst.BaseExpression, node: cst.BaseExpression, value: Value) -> None:
    """``self.mask = torch.tril(...)``."""
    if isinstance(target, cst.Attribute) and isinstance(value, Mask) and value.causal and frame.instance is not None:
        name, family = target.attr.value, frame.walk.family(frame.instance.type)
        if expressions.evaluate(frame, target.value) is frame.instance and stays_behind(name, node, family):
            event = Event(Draft(StepKind.MASK, target, frame.region), name)
            frame.walk.record.note(Trouble.PLAIN_ATTRIBUTE, event)


def _expression(frame: Frame, node: cst.BaseExpression) -> None:
    """An expression whose value nobody takes."""
    if isinstance(node, cst.BaseString):
        return
    value = expressions.evaluate(frame, node)
    if not isinstance(node, cst.Call):
        return
    name = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
    name = node.func.value if isinstance(node.func, cst.Name) else name
    if name == "register_buffer" and frame.instance is not None:
        _register_buffer(frame, node)
    step = last_step(value)
    if step and step.node is node and step.kind is StepKind.SOFTMAX:
        softmax_count.note_unused(step, frame.walk.record)
    if name not in ops.OUT_OF_PLACE or calls.written_into(node) is not None:
        return
    if isinstance(value, Tensor) and step and step.node is node:
        frame.walk.record.drop(step, value.core)
    elif name == "masked_fill" and len(node.args) >= 2:
        fill = sizes.number_of(expressions.evaluate(frame, node.args[-1].value))
        frame.walk.record.drop(Draft(StepKind.MASK, node, frame.region, fill=fill), None)


def _register_buffer(frame: Frame, node: cst.Call) -> None:
    if len(node.args) >= 2 and isinstance(node.args[0].value, cst.SimpleString) and frame.instance is not None:
        name = node.args[0].value.evaluated_value
        frame.instance.attributes[str(name)] = expressions.evaluate(frame, node.args[1].value)


def _run(frame: Frame, node: cst.CSTNode) -> None:
    frame.walk.budget -= 1
    if isinstance(node, cst.If):
        _branch(frame, node)
    elif isinstance(node, cst.For):
        _loop(frame, node)
    elif isinstance(node, cst.While):
        expressions.evaluate(frame, node.test)
        _alternatives(frame, node, [[node.body], []])
    elif isinstance(node, cst.With):
        for item in node.items:
            expressions.evaluate(frame, item.item)
            if item.asname is not None and isinstance(item.asname.name, cst.Name):
                frame.assign(item.asname.name, UNKNOWN)
        run_body(frame, node.body)
    elif isinstance(node, cst.Try | cst.TryStar):
        _try(frame, node)
    elif isinstance(node, cst.FunctionDef):
        frame.names[node.name.value] = Closure(frame.region, node, frame.instance, frame.names)
    elif isinstance(node, cst.Match):
        _alternatives(frame, node, [[case.body] for case in node.cases])


def _branch(frame: Frame, node: cst.If) -> None:
    test = expressions.evaluate(frame, node.test)
    sides: list[list[cst.BaseSuite | cst.If]] = [[node.body], []]
    if isinstance(node.orelse, cst.If):
        sides[1] = [node.orelse]
    elif isinstance(node.orelse, cst.Else):
        sides[1] = [node.orelse.body]
    if isinstance(test, Flag):
        sides = [sides[0] if test.truth else sides[1]]
    elif (missing := _tested_for_none(frame, node.test)) is not None:
        sides = [sides[0] if missing else sides[1]]
    if not modes.asks_for_the_mode(node.test):
        _alternatives(frame, node, sides, _none_on_each_side(node.test) if len(sides) > 1 else ())
        return
    with modes.within_a_test(frame.walk.record):
        _alternatives(frame, node, sides)
    if modes.leaves(node):  # what follows is only reached in one of the modes
        frame.walk.record.mode_tests += 1
        frame.mode_tests += 1


def _none_on_each_side(test: cst.BaseExpression) -> tuple[str, str]:
    """The name that is None where ``x is None`` holds, and the one where it does not; "" for no name."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1 or not isinstance(test.left, cst.Name):
        return "", ""
    operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
    if not isinstance(right, cst.Name) or right.value != "None":
        return "", ""
    if isinstance(operator, cst.Is):
        return test.left.value, ""
    return "", test.left.value if isinstance(operator, cst.IsNot) else ""


def _tested_for_none(frame: Frame, test: cst.BaseExpression) -> bool | None:
    """Whether ``x is None`` or ``x is not None`` is sure to hold; None where x is not known."""
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
    if not isinstance(right, cst.Name) or right.value != "None" or not isinstance(operator, cst.Is | cst.IsNot):
        return None
    value = expressions.evaluate(frame, test.left)
    if isinstance(value, Nothing | Scalar):
        return isinstance(value, Nothing) is isinstance(operator, cst.Is)
    return None


def _alternatives(
    frame: Frame, node: cst.CSTNode, sides: Many[Iterable[cst.BaseSuite | cst.If]], none: tuple[str, ...] = ()
) -> None:
    """Walks each side from the same start; afterwards a name stands for what any side may have left in it.

    ``none`` are the names that are None on each side.
    """
    record = frame.walk.record
    start = dict(frame.names)
    held = dict(frame.instance.attributes) if frame.instance else {}
    ends: list[tuple[dict[str, Value], dict[str, Value]]] = []
    open_sides: list[int] = []
    for index, side in enumerate(sides):
        frame.names, frame.ended = dict(start), False
        if index < len(none) and none[index] in start:
            frame.names[none[index]] = Nothing()
        if frame.instance:
            frame.instance.attributes.clear()
            frame.instance.attributes.update(held)
        with record.inside(node, index):
            for part in side:
                if isinstance(part, cst.If):
                    _run(frame, part)
                else:
                    run_body(frame, part)
        if not frame.ended:
            open_sides.append(index)
            ends.append((frame.names, dict(frame.instance.attributes) if frame.instance else {}))
    frame.ended = not ends
    if len(open_sides) == 1 < len(sides):  # what follows belongs to the only side that goes on
        record.branches |= {(node, open_sides[0])}
    frame.names = _joined([names for names, _ in ends]) if ends else start
    if frame.instance and ends:
        merged = _joined([attributes for _, attributes in ends])
        frame.instance.attributes.clear()
        frame.instance.attributes.update(merged)


def _joined(ends: list[dict[str, Value]]) -> dict[str, Value]:
    result = dict(ends[0])
    for names in ends[1:]:
        for name, value in names.items():
            result[name] = join_named(name, result[name], value) if name in result else value
    return result


def _loop(frame: Frame, node: cst.For) -> None:
    over = expressions.evaluate(frame, node.iter)
    frame.assign(node.target, expressions.items_of(over)[0])
    _alternatives(frame, node, [[node.body], []])
    frame.ended = False


def _try(frame: Frame, node: cst.Try | cst.TryStar) -> None:
    handlers: list[list[cst.BaseSuite | cst.If]] = [[handler.body] for handler in node.handlers]
    _alternatives(frame, node, [[node.body], *handlers])
    for after in (node.orelse, node.finalbody):
        if after is not None and not frame.ended:
            run_body(frame, after.body)
