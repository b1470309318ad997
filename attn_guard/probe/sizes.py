"""The sizes of a call, read off its inputs, and the same call at other sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from attn_guard.probe.calling import Call
from attn_guard.probe.copies import each_changed


@dataclass(frozen=True, order=True)
class CallSizes:
    """Batch, time and memory of a call; ``memory`` is None where all sequences have one length."""

    batch: int
    time: int
    memory: int | None = None

    def __str__(self) -> str:
        memory = "" if self.memory is None else f", memory {self.memory}"
        return f"batch {self.batch}, time {self.time}{memory}"


def sizes_of(call: Call) -> CallSizes | None:
    """The sizes of a call; None where its first sequence has no batch, or where batch and time cannot be told apart."""
    sequences = [tensor for tensor in _tensors(call) if _is_sequence(tensor)]
    if not sequences:
        return None
    batch, time = _leading(call, sequences[0])
    others = (length for one in sequences for size, length in [_leading(call, one)] if size == batch)
    memory = next((length for length in others if length != time), None)
    return None if batch in (time, memory) else CallSizes(batch, time, memory)


def resized(call: Call, old: CallSizes, new: CallSizes) -> Call:
    """The call with every axis of an old size in the new one: cut, or lengthened with numbers like those there are.

    One tensor that is given twice stays one tensor.
    """
    lengths = {old.batch: new.batch, old.time: new.time}
    if old.memory is not None and new.memory is not None:
        lengths[old.memory] = new.memory
    generator = torch.Generator().manual_seed(0)
    args, kwargs = each_changed((call.args, call.kwargs), lambda tensor: _resized(tensor, lengths, generator))
    return replace(call, args=args, kwargs=kwargs, how=f"{call.how}, at {new}")


def _tensors(call: Call) -> list[Tensor]:
    return [leaf for leaf in tree_leaves((call.args, call.kwargs)) if isinstance(leaf, Tensor)]


def _is_sequence(tensor: Tensor) -> bool:
    """Features (batch, time, width), or ids (batch, time)."""
    return tensor.dim() == 3 if tensor.is_floating_point() else tensor.dim() == 2 and tensor.dtype != torch.bool


def _leading(call: Call, tensor: Tensor) -> tuple[int, int]:
    first, second = tensor.shape[:2]
    return (first, second) if call.batch_first or not tensor.is_floating_point() else (second, first)


def _resized(tensor: Tensor, lengths: dict[int, int], generator: torch.Generator) -> Tensor:
    found = tensor.clone()
    for axis, size in enumerate(tensor.shape):
        if lengths.get(size, size) != size and not _holds_features(tensor, axis, lengths):
            found = _with_length(found, axis, lengths[size], generator)
    return found


def _holds_features(tensor: Tensor, axis: int, lengths: dict[int, Any]) -> bool:
    """Whether an axis is the last one of features; that of a square mask is not."""
    if not tensor.is_floating_point() or axis != tensor.dim() - 1:
        return False
    return tensor.dim() == 3 or tensor.shape[-2] not in lengths


def _with_length(tensor: Tensor, axis: int, length: int, generator: torch.Generator) -> Tensor:
    old = tensor.shape[axis]
    steps = torch.arange(old, device=tensor.device).view([-1 if a == axis else 1 for a in range(tensor.dim())])
    if tensor.dtype == torch.long and bool((tensor == steps).all()):  # positions
        shape = [length if a == axis else size for a, size in enumerate(tensor.shape)]
        counted = torch.arange(length, device=tensor.device).view([-1 if a == axis else 1 for a in range(tensor.dim())])
        return counted.expand(shape)
    longer = tensor.index_select(axis, torch.arange(length, device=tensor.device) % old)
    if length <= old or not tensor.is_floating_point() or not tensor.isfinite().all():
        return longer
    added = longer.narrow(axis, old, length - old)
    noise = torch.randn(added.shape, generator=generator).to(added) * tensor.float().std().to(added)
    return torch.cat((longer.narrow(axis, 0, old), noise), dim=axis)
