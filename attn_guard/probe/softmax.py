"""Where scores become weights: a softmax as one operation, or written out as exp, sum and division.

Either way it is given as one operation, from the scores that go in to the weights that come out, so that nobody
after this has to know how it was written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from attn_guard.probe.flow import DROPOUT, LAYOUT, MATMUL, PRODUCT, SELECTION, SOFTMAX, Flow
from attn_guard.probe.tape import Op, Ref

# Name of the operation in the place of a softmax that is not there.
NO_SOFTMAX = "no softmax"

_EXP = frozenset({"exp", "exp_"})
_SUBTRACTIONS = frozenset({"sub", "sub_"})
_DIVISIONS = frozenset({"div", "div_", "true_divide"})
_MAXIMA = frozenset({"amax", "max", "logsumexp"})
# What a denominator passes between the sum and the division: a small number, a floor, an extra term.
_SAFEGUARDS = LAYOUT | frozenset("add add_ clamp clamp_ clamp_min clamp_min_ maximum where masked_fill".split())
# What raised scores may pass before they are summed: masks, and moves.
_RAISED = LAYOUT | PRODUCT | SELECTION | DROPOUT


@dataclass(frozen=True)
class Softmax:
    """A softmax as one operation: ``op.inputs[0]`` are the scores, ``op.output`` the weights, ``op.args[1]`` the axis.

    Of one that is written out, ``exp`` is its exponential and ``shifted`` says whether a maximum is subtracted before;
    ``raised`` are the operations between the exponential and the sum, and ``own`` the numbers of the operations that it
    is made of. Where the division comes only after the product with the value, the weights are the undivided ones.
    """

    op: Op
    exp: Op | None = None
    shifted: bool = True
    raised: tuple[Op, ...] = ()
    own: frozenset[int] = frozenset()


def softmaxes(flow: Flow) -> list[Softmax]:
    """Every softmax over content on the tape, in order."""
    found = [Softmax(op) for op in flow.tape.ops if op.name in SOFTMAX]
    for op in flow.tape.ops:
        if op.name in _EXP and op.output in flow.content:
            written = _of_logarithms(flow, op)
            if written is not None:
                found.append(written)
        elif op.name in _DIVISIONS or op.name in {"mul", "mul_"}:
            divided = _of_exponentials(flow, op)
            if divided is not None and all(divided.exp is not other.exp for other in found):
                found.append(divided)
    return sorted(found, key=lambda softmax: softmax.op.index)


def _of_logarithms(flow: Flow, exp: Op) -> Softmax | None:
    """``log_softmax(scores).exp()`` and ``(scores - logsumexp(scores)).exp()``."""
    value = exp.inputs[0]
    before = _through(flow, value, LAYOUT)
    if (
        before is not None
        and before.name in {"_log_softmax", "log_softmax"}
        and _shape(flow, value) == _shape(flow, before.output)
    ):
        return Softmax(_folded(exp, before.inputs[0], before.args[1], exp.output))
    shift = _shift(flow, value)
    if shift is not None and shift[1].name == "logsumexp":
        axes = shift[1].args[1]
        if len(axes) == 1:
            return Softmax(_folded(exp, shift[0], axes[0], exp.output))
    return None


def _of_exponentials(flow: Flow, division: Op) -> Softmax | None:
    """``e / e.sum(axis)`` for an exponential ``e`` that may be masked before it is summed, or after, and may be
    computed twice."""
    parts = _quotient(flow, division)
    if parts is None:
        return None
    numerator, denominator = parts
    total = _through(flow, denominator, _SAFEGUARDS)
    if total is None or total.name != "sum" or len(total.args) < 2 or not isinstance(total.args[1], list):
        return None
    summed = total.inputs[0]
    exp = _through(flow, summed, _RAISED)
    if len(total.args[1]) != 1 or exp is None or exp.name not in _EXP:
        return None
    again = None if summed in flow.tape.ancestors(numerator) else _through(flow, numerator, _RAISED)
    if summed not in flow.tape.ancestors(numerator) and not _is_same_exponential(flow, exp, again):
        return None
    shift = _shift(flow, exp.inputs[0])
    scores = exp.inputs[0] if shift is None else shift[0]
    own = {exp.index, total.index, division.index} | ({again.index} if again is not None else set())
    maker = flow.tape.maker(summed)
    whole = numerator == summed or maker is None or again is not None
    weights, last = (division.output, division) if whole else (summed, maker)
    assert last is not None
    return Softmax(
        op=_folded(last, scores, total.args[1][0], weights),
        exp=exp,
        shifted=shift is not None,
        raised=tuple(flow.chain(exp.output, summed)),
        own=frozenset(own),
    )


def _is_same_exponential(flow: Flow, exp: Op, other: Op | None) -> bool:
    """Whether another operation raises the same scores once more, less their maximum or as they are."""
    if other is None or other.name not in _EXP:
        return False
    shifts = [_shift(flow, one.inputs[0]) for one in (exp, other)]
    scores = [one.inputs[0] if shift is None else shift[0] for one, shift in zip((exp, other), shifts, strict=True)]
    return scores[0] == scores[1] and (shifts[0] is None) is (shifts[1] is None)


def _quotient(flow: Flow, op: Op) -> tuple[int, int] | None:
    """Numerator and denominator of a division, or of a product with a reciprocal."""
    refs = [arg.index if isinstance(arg, Ref) else None for arg in op.args[:2]]
    if len(refs) < 2 or refs[0] is None or refs[1] is None or refs[1] not in flow.content:
        return None
    if op.name in _DIVISIONS:
        return refs[0], refs[1]
    for numerator, inverse in ((refs[0], refs[1]), (refs[1], refs[0])):
        maker = _through(flow, inverse, LAYOUT)
        if maker is not None and maker.name in {"reciprocal", "reciprocal_"}:
            return numerator, maker.inputs[0]
    return None


def _shift(flow: Flow, value: int) -> tuple[int, Op] | None:
    """(scores, the maximum over them) where a value is scores minus their own maximum."""
    op = flow.tape.maker(value)
    if op is None or op.name not in _SUBTRACTIONS or len(op.inputs) < 2:
        return None
    scores, taken = op.args[0], op.args[1]
    if not isinstance(scores, Ref) or not isinstance(taken, Ref):
        return None
    highest = _through(flow, taken.index, _SAFEGUARDS)
    return (scores.index, highest) if highest is not None and highest.name in _MAXIMA else None


def _through(flow: Flow, value: int, names: Collection[str]) -> Op | None:
    """The nearest operation behind those with the given names, along their first content operands."""
    op = flow.tape.maker(value)
    while op is not None and op.name in names and op.name not in MATMUL:
        following = next((read for read in op.inputs if read in flow.content), None)
        if following is None:
            return None
        op = flow.tape.maker(following)
    return op


def _shape(flow: Flow, value: int) -> Any:
    return flow.tape.values[value].shape


def _folded(last: Op, scores: int, axis: int, weights: int) -> Op:
    """One softmax operation in place of those it is written with, at the place of the last."""
    return replace(
        last,
        name="softmax",
        args=(Ref(scores), axis, False),
        kwargs={},
        inputs=(scores,),
        outputs=(weights,),
        writes=(),
    )
