"""Cuts long sequences, or else large batches, out of given inputs: a probe repeats a run once per position, and
mistakes show on short ones.

Which axes are time is read off the inputs themselves: the second axis of (B, T) ids and masks, the first two of (B,
T, D) features. Every axis of such a size is cut alike, so that masks (B, H, T, T) still fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from attn_guard.probe.copies import each_changed

LONG = 24  # axes up to this size are left alone
SHORT = (13, 11, 7)  # primes, so that lengths of different inputs do not coincide
SAMPLES = 5  # no usual number of heads

Inputs = tuple[tuple[Any, ...], Mapping[str, Any]]


def shortened(args: tuple[Any, ...], kwargs: Mapping[str, Any], least: int = 0) -> Inputs | None:
    """The inputs with their long axes cut to a few positions, but no fewer than ``least``; None if there is nothing to
    cut.

    One tensor that is given twice stays one tensor.
    """
    tensors = [leaf for leaf in tree_leaves((args, dict(kwargs))) if isinstance(leaf, Tensor)]
    sizes = dict.fromkeys(size for tensor in tensors for size in _times(tensor) if size > LONG)
    if not sizes:
        return None
    lengths = {size: min(size, max(least, SHORT[min(position, len(SHORT) - 1)])) for position, size in enumerate(sizes)}
    return each_changed((args, dict(kwargs)), lambda tensor: cut(tensor, lengths))


def with_fewer_samples(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Inputs | None:
    """The inputs with only a few of many samples, such as the windows of an image; None if there are not that many.

    For modules that take no other length.
    """
    tensors = [leaf for leaf in tree_leaves((args, dict(kwargs))) if isinstance(leaf, Tensor)]
    features = (tensor.shape for tensor in tensors if tensor.is_floating_point() and tensor.dim() == 3)
    batch, time = next(((shape[0], shape[1]) for shape in features), (0, 0))
    if batch <= LONG or batch == time:
        return None
    return each_changed((args, dict(kwargs)), lambda tensor: cut(tensor, {batch: SAMPLES}))


def _times(tensor: Tensor) -> Iterator[int]:
    """The sizes of the axes that may be time."""
    if tensor.dim() == 2 and not tensor.is_floating_point():
        yield from tensor.shape
    elif tensor.dim() == 3:
        yield from tensor.shape[:2]


def cut(tensor: Tensor, lengths: Mapping[int, int]) -> Tensor:
    """A tensor with each axis of a size in ``lengths`` cut to the length named there; features stay."""
    features = tensor.dim() - 1 if tensor.is_floating_point() and tensor.dim() == 3 else None
    for axis, size in enumerate(tensor.shape):
        if size in lengths and axis != features and not (tensor.dim() == 1 and tensor.is_floating_point()):
            tensor = tensor.narrow(axis, 0, lengths[size])
    return tensor.clone()
