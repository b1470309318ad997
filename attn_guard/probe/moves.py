"""Where rows go that are only moved on their way, scaled, and shifted by a bias."""

from __future__ import annotations

from math import isfinite
from typing import Any

import torch
from torch import Tensor

from attn_guard.probe.entries import COPIES, MOVES, entries_of
from attn_guard.probe.flow import PRODUCT, SUM, Flow
from attn_guard.probe.origins import Rows
from attn_guard.probe.tape import Op, Ref, Tape


def moved_labels(flow: Flow, rows: Rows, labels: Tensor, targets: list[int]) -> dict[int, Tensor]:
    """Target → for each of its numbers, the label of the row that it comes from; ``labels`` has one for each row.

    Left out are targets on whose way rows meet each other, or anything else is done to them.
    """
    tape = flow.tape
    named = torch.empty(rows.elements.numel(), dtype=torch.long)
    named[rows.elements] = labels[:, None]
    moved = {
        target: entries_of(tape, rows.value, target) for target in targets if _moves_only(flow, rows.value, target)
    }
    return {target: named[entries.cpu()] for target, entries in moved.items() if entries is not None}


def _moves_only(flow: Flow, source: int, target: int) -> bool:
    """Whether one chain of moves, factors and biases leads from a value to another."""
    tape = flow.tape
    behind = tape.between(source, target)
    current = target
    while current in behind and current != source:
        op = tape.maker(current)
        incoming = [] if op is None else [read for read in op.inputs if read in behind]
        if op is None or len(incoming) != 1 or not (op.name in MOVES | COPIES or _is_affine(tape, op, incoming[0])):
            return False
        current = incoming[0]
    return current == source


def _is_affine(tape: Tape, op: Op, incoming: int) -> bool:
    """Whether an operation gives factor · value + bias, with factors and biases of its own for each number, none of
    them infinite and no factor 0."""
    if op.name not in PRODUCT | SUM or op.kwargs.get("rounding_mode") is not None:
        return False
    own = [isinstance(given, Ref) and given.index == incoming for given in op.args[:2]]
    if own == [False, True] and op.name.startswith(("div", "true_divide")):
        return False
    return sum(own) == 1 and _is_harmless(tape, op.args[own.index(False)], factor=op.name in PRODUCT)


def _is_harmless(tape: Tape, other: Any, *, factor: bool) -> bool:
    """Whether a factor or bias leaves every number distinct."""
    if not isinstance(other, Ref):
        return isfinite(other) and not (factor and other == 0)
    value = tape.values[other.index]
    return bool(value.isfinite().all()) and not (factor and bool((value == 0).any()))
