"""Which number of a value each number of another is made of, where it is one alone: read off the operations between
them, without a replay."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from attn_guard.probe.flow import PRODUCT, SHAPE_ONLY, SUM, Flow
from attn_guard.probe.tape import Op, Ref

_MOVES = frozenset(
    "view _unsafe_view reshape transpose t permute expand unsqueeze squeeze select slice index index_select".split()
)
_ONE_BY_ONE = (PRODUCT | SUM) | frozenset(
    """
    _to_copy clone alias detach lift_fresh masked_fill masked_fill_ where bitwise_not bitwise_and bitwise_or
    logical_not logical_and logical_or neg exp log eq ne gt ge lt le
    """.split()
)


def entries_of(flow: Flow, source: int, target: int) -> Tensor | None:
    """For each number of ``target``, the flat number of the one entry of ``source`` that has a part in it; None where
    operations do more than move entries and change them one by one."""
    values = flow.tape.values
    entries = {source: torch.arange(values[source].numel()).view(values[source].shape)}
    for op in flow.between(source, target):
        given = [entries[read] for read in op.inputs if read in entries]
        if op.name in SHAPE_ONLY or not given:
            continue
        if op.name in _MOVES:
            made = _moved(flow, op, entries)
        else:
            made = _joined(given, values[op.output].shape) if op.name in _ONE_BY_ONE else None
        if made is None:
            return None
        entries[op.output] = made
    return entries.get(target)


def _moved(flow: Flow, op: Op, entries: dict[int, Tensor]) -> Tensor | None:
    """Where a move takes the entries; None where they say where to move others."""
    first, *others = op.inputs
    if first not in entries or any(other in entries for other in others):
        return None
    args: Any = tree_map_only(Ref, lambda ref: entries.get(ref.index, flow.tape.values[ref.index].cpu()), op.args)
    run = torch.reshape if "view" in op.name else op.run
    moved: Tensor = run(*args, **op.kwargs)
    return moved


def _joined(given: list[Tensor], shape: torch.Size) -> Tensor | None:
    """What numbers made of several values, one by one, come from; None where these come from different entries."""
    first, *others = (one.expand(shape) for one in given)
    return first if all(torch.equal(first, other) for other in others) else None
