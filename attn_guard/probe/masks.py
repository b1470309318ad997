"""Recognises what is done to scores and weights on the way: scaling, masking, bias, dropout.

Names of operations say what may happen; the recorded numbers say what did.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, log

import torch
from torch import Tensor

from attn_guard.probe.flow import DROPOUT, LAYOUT, NORM, PRODUCT, SELECTION, SUM, Flow
from attn_guard.probe.tape import Op, Ref, same

# Scores that something this far below was added to are meant to be blocked.
BLOCKING = -1e3
# What is added to some scores and is less than this is no bias either.
NOTHING = 1e-6


@dataclass(frozen=True)
class Mask:
    """A mask as it was applied: ``blocked`` has the shape of the scores, ``fill`` is the number put in (or added)."""

    op: Op
    blocked: Tensor
    fill: float | None

    @property
    def of_logarithms(self) -> Mask:
        """A mask on exponentials, as the mask on the scores that it stands for: a fill of 0 is one of -inf."""
        known = self.fill is not None and self.fill >= 0
        return replace(self, fill=(log(self.fill) if self.fill else -inf) if known else None)


def multiplier(flow: Flow, op: Op, incoming: int) -> float | None:
    """The number that an operation multiplies ``incoming`` by: 1.0 for none, None where it is learned or varies."""
    tape = flow.tape
    if op.name in {"addmm", "baddbmm"}:
        return float(op.kwargs.get("alpha", op.args[4] if len(op.args) > 4 else 1.0))
    if op.name not in PRODUCT or drops(flow, op):
        return 1.0
    first, second = op.args[0], op.args[1]
    inverse = op.name.startswith(("div", "true_divide"))
    if isinstance(first, Ref) and first.index == incoming:
        other = second
    elif inverse:
        return None
    else:
        other = first
    if not isinstance(other, Ref):
        return 1.0 / float(other) if inverse else float(other)
    if other.index in flow.content or other.index in flow.learned:
        return None
    factor = tape.values[other.index]
    if factor.numel() == 0:
        return None
    if factor.is_complex():
        return 1.0 if bool(((factor.abs() - 1).abs() < 1e-5).all()) else None
    if factor.numel() > 1 and not (factor == factor.reshape(-1)[0]).all():
        return 1.0
    number = float(factor.reshape(-1)[0])
    return (1.0 / number if number else inf) if inverse else number


def mask(flow: Flow, op: Op, incoming: int) -> Mask | None:
    """The mask that an operation applies to ``incoming``; None where it applies none."""
    tape = flow.tape
    if drops(flow, op):
        return None
    others = [read for read in op.inputs if read != incoming]
    if op.name in SELECTION or op.name == "overwrite":
        return _selected(flow, op, incoming, others)
    if op.name in {"baddbmm", "addmm"}:
        return _added(op, tape.values[op.inputs[0]], tape.values[op.output])
    if op.name in SUM and len(others) == 1 and others[0] not in flow.content:
        sign = -1.0 if op.name.startswith("sub") else 1.0
        return _added(op, sign * tape.values[others[0]].float(), tape.values[op.output])
    if op.name in SUM and len(others) == 1:
        return _added(op, tape.values[others[0]], tape.values[op.output], strict=True)
    if op.name in PRODUCT and len(others) == 1 and others[0] not in flow.content:
        return _multiplied(op, tape.values[others[0]], tape.values[op.output])
    return None


def _selected(flow: Flow, op: Op, incoming: int, others: list[int]) -> Mask | None:
    """masked_fill, where, index assignment: the cells whose number was replaced."""
    if any(read in flow.content and not flow.tape.values[read].is_floating_point() for read in others):
        return None
    before, after = flow.tape.values[incoming], flow.tape.values[op.output]
    if before.shape != after.shape:
        before = before.expand(after.shape) if before.dim() <= after.dim() else before
    if before.shape != after.shape or not after.is_floating_point():
        return None
    blocked = ~same(before, after) | _condition(flow, op, after)
    fill = _only(after[blocked])
    if fill is None and blocked.any() and not flow.content.isdisjoint(others):
        return _rewritten(op, blocked, before, after)
    return Mask(op, blocked, fill)


def _rewritten(op: Op, changed: Tensor, before: Tensor, after: Tensor) -> Mask | None:
    """Scores that others were put in the place of. They hide nothing, except where they are far below zero, or lower
    than before by one number: a part of the scores may be written back with a bias."""
    blocked = changed & (after <= BLOCKING)
    if blocked.any():
        return Mask(op, blocked, _only(after[blocked]))
    added = (after - before)[changed]
    constant = bool((added < -NOTHING).all()) and torch.allclose(added, added.mean().expand_as(added), rtol=1e-4)
    return Mask(op, changed, float(added.mean())) if constant else None


def _condition(flow: Flow, op: Op, after: Tensor) -> Tensor:
    """Cells that a masked_fill blocks even though they held the fill already."""
    if op.name in {"masked_fill", "masked_fill_"} and isinstance(op.args[1], Ref):
        return flow.tape.values[op.args[1].index].bool().expand(after.shape)
    return torch.zeros_like(after, dtype=torch.bool)


def _added(op: Op, bias: Tensor, after: Tensor, strict: bool = False) -> Mask | None:
    """An additive mask blocks where it is far below zero, or is meant to where it has just two levels: 0, and one below
    it, or one too large or too small for a bias (+inf, 1e-9)."""
    if bias.numel() == 0 or not bias.is_floating_point():
        return None
    bias = bias.detach()
    lowest = float(bias.min())
    levels = torch.unique(bias) if not strict and bias.numel() <= 1 << 16 else bias.new_empty(0)
    if lowest <= BLOCKING:
        blocked, fill = bias <= BLOCKING, lowest
    elif len(levels) == 2 and float(levels[1]) == 0.0:
        blocked, fill = bias == levels[0], float(levels[0])
    elif len(levels) == 2 and float(levels[0]) == 0.0 and not NOTHING < float(levels[1]) < -BLOCKING:
        blocked, fill = bias == levels[1], float(levels[1])
    else:
        return None
    try:
        return Mask(op, blocked.expand(after.shape), fill)
    except RuntimeError:
        return None


def _multiplied(op: Op, factor: Tensor, after: Tensor) -> Mask | None:
    """scores × a 0/1 mask that differs along keys or queries."""
    if factor.numel() < 2 or factor.dim() < 2 or (factor.shape[-1] == 1 and factor.shape[-2] == 1):
        return None
    if not ((factor == 0) | (factor == 1)).all() or not (factor == 0).any():
        return None
    try:
        return Mask(op, (factor == 0).expand(after.shape), 0.0)
    except RuntimeError:
        return None


def has_flags(flow: Flow, value: int) -> bool:
    """Whether a value is, or is a sum with, flags: 0 and 1, made of something boolean, of a triangle, or of an argument
    named as a mask."""
    if value in flow.content or value in flow.learned:
        return False
    if _is_flags(flow, value):
        return True
    maker = flow.tape.maker(value)
    return maker is not None and maker.name in SUM | LAYOUT and any(has_flags(flow, read) for read in maker.inputs)


def _is_flags(flow: Flow, value: int) -> bool:
    number = flow.tape.values[value]
    if number.dim() < 2 or number.is_complex() or not ((number == 0) | (number == 1)).all():
        return False
    if bool((number == number.reshape(-1)[0]).all()):
        return False
    tape = flow.tape
    for source in tape.ancestors(value):
        maker = tape.maker(source)
        of_triangle = maker is not None and maker.name in {"triu", "tril"}
        if of_triangle or tape.values[source].dtype == torch.bool or "mask" in tape.leaves.get(source, ""):
            return True
    return False


def _only(numbers: Tensor) -> float | None:
    """The one number that all cells hold, if they do."""
    if numbers.numel() == 0:
        return None
    first = numbers.reshape(-1)[0]
    return float(first) if same(numbers, first.expand_as(numbers)).all() else None


def is_norm(op: Op) -> bool:
    return op.name in NORM


def drops(flow: Flow, op: Op) -> bool:
    """Whether an operation zeroes what was drawn by chance and multiplies the rest by one number."""
    if op.name in DROPOUT:
        return True
    return op.name in PRODUCT and any(_is_draw(flow, read) for read in op.inputs)


def _is_draw(flow: Flow, value: int) -> bool:
    """Random numbers of two kinds: 0, and another one."""
    tape = flow.tape
    if value in flow.content or not any(
        (op := tape.maker(step)) is not None and op.random for step in tape.ancestors(value)
    ):
        return False
    kept = tape.values[value][tape.values[value] != 0]
    return kept.numel() == 0 or bool((kept == kept.reshape(-1)[0]).all())
