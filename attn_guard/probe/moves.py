"""Where rows go that are only moved and multiplied by a number on their way: two replays of labels tell it exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from attn_guard.probe.flow import PRODUCT, Flow
from attn_guard.probe.origins import Rows
from attn_guard.probe.replay import Replay
from attn_guard.probe.tape import Op

_MOVES = frozenset(
    """
    view _unsafe_view reshape _reshape_alias transpose t permute expand unsqueeze squeeze select slice narrow split
    split_with_sizes chunk unbind clone contiguous alias detach movedim flatten unflatten
    """.split()
)
# Labels are small whole numbers, found again after a multiplication and a division.
_MOST_ROWS = 1 << 20


def moved_labels(flow: Flow, rows: Rows, labels: Tensor, targets: list[int]) -> dict[int, Tensor]:
    """Target → for each of its numbers, the label of the row that it comes from; ``labels`` has one for each row.

    Left out are targets on whose way more is done than moving and multiplying by one number.
    """
    reached = [target for target in targets if _moves_only(flow, rows.value, target)]
    if not reached or len(rows) > _MOST_ROWS:
        return {}
    value = flow.tape.values[rows.value]
    named = torch.empty(value.numel(), dtype=torch.float64)
    named[rows.elements] = labels.double()[:, None]
    replay = Replay(flow.tape, [rows.value], reached)
    moved = replay({rows.value: named.view(value.shape).to(value.device)})
    scaled = replay({rows.value: torch.ones_like(value, dtype=torch.float64)})
    return {
        target: (moved[target] / scaled[target]).round().long().cpu()
        for target in reached
        if bool((scaled[target].isfinite() & (scaled[target] != 0)).all())
    }


def _moves_only(flow: Flow, source: int, target: int) -> bool:
    """Whether one chain of moves and multiplications by a number leads from a value to another."""
    tape = flow.tape
    current = target
    while current != source:
        op = tape.maker(current)
        if op is None or op.writes or not (op.name in _MOVES or _multiplies_by_number(flow, op)):
            return False
        current = op.inputs[0]
    return True


def _multiplies_by_number(flow: Flow, op: Op) -> bool:
    value, others = flow.tape.values[op.inputs[0]], op.inputs[1:]
    numbers = [flow.tape.values[other] for other in others if other not in flow.content]
    known = len(numbers) == len(others) and all(one.numel() == 1 and one.dim() <= value.dim() for one in numbers)
    return op.name in PRODUCT and known and not op.kwargs
