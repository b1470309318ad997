"""Training and evaluation mode: dropout that knows nothing of it, and code that asks for it; and weights nobody
reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attn_guard.anatomy import StepKind
from attn_guard.lint import names
from attn_guard.lint import nodes as cst
from attn_guard.lint.record import Event, Record, Trouble
from attn_guard.lint.values import (
    UNKNOWN,
    AttentionMap,
    Bound,
    Dotted,
    Draft,
    Flag,
    Instance,
    Layer,
    Rate,
    Role,
    Scalar,
    Sequence,
    Tensor,
    Unknown,
    Value,
)
from attn_guard.lint.zero_rates import is_without_dropout

if TYPE_CHECKING:
    from attn_guard.lint.place import Call
    from attn_guard.lint.regions import Region

_STAGES = {Role.SCORES: "scores", Role.WEIGHTS: "weights", Role.CONTEXT: "context"}


def held(name: str, value: Value) -> Value:
    """An attribute of a module: a dropout rate goes by its name, unless it is known to be 0 or something else."""
    taken_over = isinstance(value, Unknown) or (isinstance(value, Bound) and isinstance(value.receiver, Unknown))
    return Rate() if names.is_dropout_rate(name) and (taken_over or _is_above_0(value)) else value


def rate_of(layer: Layer) -> Value:
    """``nn.Dropout(...).p``"""
    given = layer.kwargs.get("p", layer.args[0] if layer.args else None)
    return UNKNOWN if isinstance(given, Scalar) and not _is_above_0(given) else Rate()


def _is_above_0(value: Value) -> bool:
    return isinstance(value, Scalar) and value.is_number and value.number > 0


def note_rate(call: Call, rate: Value | None, stage: str) -> None:
    """A function without a notion of modes is given this rate."""
    in_method = call.place.region.owner is not None
    drops = rate == Rate() or (in_method and rate is not None and _is_above_0(rate))
    if drops and call.place.record.mode_tests == 0 and not is_without_dropout(call.place):
        call.place.record.note(Trouble.DROPS_IN_EVAL, Event(call.place.draft(StepKind.DROPOUT), stage))


def note_handed_on(call: Call, function: Value) -> None:
    """A function that is not in sight is given a query, a key and a rate for the fused attention. A module could ask
    for its own mode; what an argument holds, or somebody who is given the module itself, may."""
    node, record = call.place.node, call.place.record
    is_function = isinstance(function, Dotted) or (isinstance(function, Unknown) and not function.parameter)
    asks = call.spread or "training" in call.kwargs or any(isinstance(value, Instance) for value in call.args)
    if call.kwargs.get("dropout_p") != Rate() or not is_function or asks or record.mode_tests:
        return
    given = node.args if isinstance(node, cst.Call) else []
    named = [arg.value.value for arg in given if isinstance(arg.value, cst.Name)]
    rate = next((arg.value for arg in given if arg.keyword and arg.keyword.value == "dropout_p"), None)
    if rate and any(map(names.is_query, named)) and any(map(names.is_key, named)):
        record.note(Trouble.HANDS_RATE_ON, Event(Draft(StepKind.DROPOUT, rate, call.place.region)))


def only_in_training(test: cst.BaseExpression, body: Value, orelse: Value) -> Rate | None:
    """``rate if self.training else 0.0``"""
    return Rate(guarded=True) if Rate() in (body, orelse) and asks_for_the_mode(test) else None


def note_functional(call: Call, value: Value) -> None:
    """``F.dropout(weights, p)`` without ``training=``."""
    training = call.given(2, "training")
    if isinstance(value, Tensor) and value.role in _STAGES and not call.spread and training in (None, Flag(True)):
        note_rate(call, call.given(1, "p") or Scalar(0.5), _STAGES[value.role])


def note_new_layer(layer: Layer, call: Call, value: Value) -> None:
    """A layer that is made where it is used starts in training mode at every call."""
    if layer.home is call.place.region and isinstance(value, Tensor) and value.role in _STAGES:
        rate = rate_of(layer)
        note_rate(call, Scalar(0.5) if isinstance(rate, Rate) else None, _STAGES[value.role])


def asks_for_the_mode(test: cst.CSTNode) -> bool:
    """Whether a test depends on training or evaluation mode."""
    return any(re.search(r"train|eval|infer", name.value) for name in test.names())


@contextmanager
def within_a_test(record: Record) -> Iterator[None]:
    """While the branches of such a test are walked."""
    record.mode_tests += 1
    try:
        yield
    finally:
        record.mode_tests -= 1


def leaves(node: cst.If) -> bool:
    """Whether the body of an ``if`` ends with a return."""
    body = node.body.body
    return bool(body) and isinstance(body[-1], cst.Return | cst.Raise)


def note_unread(seen: AttentionMap, target: cst.BaseExpression, region: Region, record: Record) -> None:
    """Weights that are bound to a name which nobody reads."""
    if not isinstance(target, cst.Name):
        return
    name = target.value
    if name.startswith("_") or len(re.findall(rf"\b{name}\b", region.text)) == 1:
        _note(seen.draft, record)


def note_left_behind(result: Sequence, record: Record) -> None:
    """``attention(...)[0]``"""
    if len(result.items) == 2 and isinstance(result.items[1], AttentionMap):
        _note(result.items[1].draft, record)


def _note(draft: Draft, record: Record) -> None:
    record.note(Trouble.UNREAD_MAP, Event(draft))
