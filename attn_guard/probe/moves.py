"""Where rows go that are only moved on their way, scaled, and shifted by a bias: three replays tell it, however
many."""

from __future__ import annotations

import torch
from torch import Tensor

from attn_guard.probe.flow import PRODUCT, SUM, Flow
from attn_guard.probe.origins import Rows
from attn_guard.probe.replay import Replay
from attn_guard.probe.tape import Op, Ref

_MOVES = frozenset(
    """
    view _unsafe_view reshape _reshape_alias transpose t permute expand unsqueeze squeeze select slice narrow split
    split_with_sizes chunk unbind clone contiguous alias detach movedim flatten unflatten
    """.split()
)
# Labels are small whole numbers, found again after factors and biases.
_MOST_ROWS = 1 << 20


def moved_labels(flow: Flow, rows: Rows, labels: Tensor, targets: list[int]) -> dict[int, Tensor]:
    """Target → for each of its numbers, the label of the row that it comes from; ``labels`` has one for each row.

    Left out are targets on whose way rows meet each other, or anything else is done to them.
    """
    reached = [target for target in targets if _moves_only(flow, rows.value, target)]
    if not reached or len(rows) > _MOST_ROWS:
        return {}
    value = flow.tape.values[rows.value]
    named = torch.empty(value.numel(), dtype=torch.float64)
    named[rows.elements] = labels.double()[:, None]
    replay = Replay(flow.tape, [rows.value], reached)
    moved = replay({rows.value: named.view(value.shape).to(value.device)})
    zero, one = (replay({rows.value: torch.full_like(value, number, dtype=torch.float64)}) for number in (0, 1))
    found: dict[int, Tensor] = {}
    for target in reached:
        bias, factor = zero[target], one[target] - zero[target]
        if factor.is_floating_point() and bool((factor.isfinite() & (factor != 0)).all()):
            found[target] = ((moved[target] - bias) / factor).round().long().cpu()
    return found


def _moves_only(flow: Flow, source: int, target: int) -> bool:
    """Whether one chain of moves, factors and biases leads from a value to another."""
    tape = flow.tape
    behind = tape.between(source, target)
    current = target
    while current in behind and current != source:
        op = tape.maker(current)
        incoming = [] if op is None else [read for read in op.inputs if read in behind]
        if op is None or len(incoming) != 1 or not (op.name in _MOVES or _is_affine(op, incoming[0])):
            return False
        current = incoming[0]
    return current == source


def _is_affine(op: Op, incoming: int) -> bool:
    """Whether an operation gives factor · value + bias, with factors and biases of its own for each number."""
    places = [place for place, given in enumerate(op.args) if isinstance(given, Ref) and given.index == incoming]
    divides = op.name.startswith(("div", "true_divide"))
    return op.name in PRODUCT | SUM and (places == [0] or (len(places) == 1 and not divides)) and not _rounds(op)


def _rounds(op: Op) -> bool:
    return op.kwargs.get("rounding_mode") is not None
