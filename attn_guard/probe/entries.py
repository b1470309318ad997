"""Which number of a value each number of another is made of, where it is one alone: read off the operations between
them, with numbers in the place of the values."""

from __future__ import annotations

import torch
from torch import Tensor

from attn_guard.probe.flow import PRODUCT, SHAPE_ONLY, SUM
from attn_guard.probe.replay import instruction
from attn_guard.probe.tape import Op, Tape

MOVES = frozenset(
    """
    view _unsafe_view reshape transpose t permute expand unsqueeze squeeze select slice split split_with_sizes unbind
    index index_select
    """.split()
)
COPIES = frozenset("_to_copy clone alias detach lift_fresh".split())
_ONE_BY_ONE = (PRODUCT | SUM | COPIES) | frozenset(
    """
    masked_fill masked_fill_ where bitwise_not bitwise_and bitwise_or
    logical_not logical_and logical_or neg exp log tanh eq ne gt ge lt le
    """.split()
)


def entries_of(tape: Tape, source: int, target: int) -> Tensor | None:
    """For each number of ``target``, the flat number of the one entry of ``source`` that has a part in it; None where
    operations do more than move entries and change them one by one."""
    value = tape.values[source]
    entries = {source: torch.arange(value.numel(), device=value.device).view(value.shape)}
    for op in tape.on_the_way(source, target):
        given = [read for read in op.inputs if read in entries]
        if op.name in SHAPE_ONLY or not given:
            continue
        if op.name in MOVES and given == [op.inputs[0]] and op.run is not torch.ops.aten.view.dtype:
            instruction(tape, op).run(entries, tape.values)
        elif op.name in _ONE_BY_ONE and (joined := _joined(tape, op, [entries[read] for read in given])) is not None:
            entries[op.output] = joined
        else:
            return None
    return entries.get(target)


def _joined(tape: Tape, op: Op, given: list[Tensor]) -> Tensor | None:
    """What numbers made of several values, one by one, come from; None where these come from different entries."""
    first, *others = (one.expand(tape.values[op.output].shape) for one in given)
    return first if all(torch.equal(first, other) for other in others) else None
