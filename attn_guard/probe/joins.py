"""Masks that are joined with the wrong operator: of what one of them hides, the other lets something through.

A join of two boolean masks may be meant (the future, but not within the prompt). It cannot be where the module
promises to be causal and one of the two is the causal mask, or where masks of positions alone cancel each other out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.masks import BLOCKING
from attn_guard.probe.on_scores import cells_at, on_scores
from attn_guard.probe.replay import Replay, ReplayError
from attn_guard.probe.tape import Op

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay

_AND = frozenset("bitwise_and bitwise_and_ logical_and logical_and_ __and__ __iand__".split())
_OR = frozenset("bitwise_or bitwise_or_ logical_or logical_or_ __or__ __ior__".split())


def wrong_joins(xray: XRay) -> Iterator[Op]:
    """Operations that join two masks so that keys which one of them hides can be seen."""
    for anatomy in xray.sites:
        for join, applied, scores in _joins(anatomy):
            try:
                if _loses_one(xray, anatomy, join, applied, scores):
                    yield join
            except (ReplayError, RuntimeError):
                continue


def _joins(anatomy: Anatomy) -> Iterator[tuple[Op, Op, int]]:
    """Each join of two boolean masks, with the operation that applies the result to the scores, and these."""
    flow = anatomy.trace.flow
    tape = flow.tape
    for incoming, op in on_scores(anatomy):
        for operand in op.inputs:
            if operand == incoming or operand in flow.content:
                continue
            for value in sorted(tape.ancestors(operand)):
                join = tape.maker(value)
                if join is None or join.name not in _AND | _OR or len(join.inputs) != 2:
                    continue
                if all(tape.values[part].dtype == torch.bool for part in (*join.inputs, value)):
                    yield join, op, incoming


def join_at(anatomy: Anatomy, applied: Op) -> Op:
    """The last join of masks that an operation applies to the scores; the operation itself where there is none."""
    return max((join for join, op, _ in _joins(anatomy) if op is applied), key=lambda op: op.index, default=applied)


def _loses_one(xray: XRay, anatomy: Anatomy, join: Op, applied: Op, scores: int) -> bool:
    hides = _true_hides(anatomy, join, applied, scores)
    if hides is None or (join.name in _AND) is not hides:
        return False
    cells = [_hidden(anatomy, applied, value, hides) for value in (*join.inputs, join.output)]
    first, second, joined = cells
    if first is None or second is None or joined is None:
        return False
    distance = anatomy.influence.distance
    if xray.contract.causal is True and distance is not None and (distance > 0).any():
        later, own = distance > 0, distance == 0
        causal = [part for part in (first, second) if not (later & ~part).any() and not (part & own).any()]
        if len(causal) != 1:
            return False
        opened_on_purpose = causal[0].all(dim=-1, keepdim=True)  # a row without any key
        return bool((later & ~joined & ~opened_on_purpose).any())
    tape = anatomy.trace.flow.tape
    of_positions = tape.descendants(tape.inputs().values()).isdisjoint(join.inputs)
    return of_positions and bool(first.any() and second.any() and not joined.any())


def _true_hides(anatomy: Anatomy, join: Op, applied: Op, scores: int) -> bool | None:
    """Whether True in the result of a join hides keys; None where it makes no difference.

    The scores stay as they were, which earlier layers would change otherwise.
    """
    tape = anatomy.trace.flow.tape
    replay = Replay(tape, [join.output, scores], [applied.output])
    hidden = []
    for everywhere in (True, False):
        mask = torch.full_like(tape.values[join.output], everywhere)
        hidden.append(int((replay({join.output: mask, scores: tape.values[scores]})[applied.output] <= BLOCKING).sum()))
    return None if hidden[0] == hidden[1] else hidden[0] > hidden[1]


def _hidden(anatomy: Anatomy, applied: Op, value: int, hides: bool) -> Tensor | None:
    """(slices, queries, keys): what a mask would hide by itself; None where its axes are not those of the scores."""
    tape = anatomy.trace.flow.tape
    mask, scores = tape.values[value], tape.values[applied.output].shape
    if mask.dim() == 3 and len(scores) == 4:
        mask = mask.unsqueeze(1)
    cells = cells_at(anatomy, applied, (mask if hides else ~mask).expand(scores))
    return None if cells is None else cells.cpu()
