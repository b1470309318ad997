"""The arguments of a recorded call, cut into what belongs to some of its positions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from attn_guard.probe.calling import bound
from attn_guard.probe.copies import copied, double
from attn_guard.probe.streams import Stream

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay

MOST_WINDOW = 64


@dataclass(frozen=True)
class Chunks:
    """What a call hands over for each position. ``main`` is the argument that ``stream`` is of; with ``exact``, all
    numbers are in float64."""

    xray: XRay
    stream: Stream
    main: str
    exact: bool = False

    @cached_property
    def total(self) -> int:
        """How many positions are decoded: those of the recorded call, or more where these do not cross a window and
        no other argument is as long."""
        recorded = self.stream.leading[self.axis]
        values = bound(self.xray.module, self.xray.call)
        others = [leaf for name, value in values.items() if name != self.main for leaf in tree_leaves(value)]
        tied = any(isinstance(leaf, Tensor) and recorded in leaf.shape for leaf in others)
        return recorded if tied else max(recorded, self._beyond_window)

    @property
    def _beyond_window(self) -> int:
        """A length that crosses the sliding window, where there is a short one."""
        config = getattr(self.xray.module, "config", None)
        for window in (self.xray.contract.window, getattr(config, "sliding_window", None)):
            if isinstance(window, int) and 0 < window <= MOST_WINDOW:
                return window + 3
        return 0

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the full pass, by name; longer than recorded where a window is to be crossed."""
        found: dict[str, Any] = copied(bound(self.xray.module, self.xray.call))
        lengthened = self._lengthened(found[self.main])
        found = {name: lengthened if value is found[self.main] else value for name, value in found.items()}
        return tree_map_only(Tensor, double, found) if self.exact else found

    def _lengthened(self, main: Tensor) -> Tensor:
        missing = self.total - main.shape[self.axis]
        if missing <= 0:
            return main
        generator = torch.Generator().manual_seed(self.xray.seed)
        order = torch.randint(main.shape[self.axis], (missing,), generator=generator).to(main.device)
        return torch.cat((main, main.index_select(self.axis, order).flip(0)), dim=self.axis)

    @property
    def axis(self) -> int:
        return self.stream.time_axis

    def cut(self, start: int, end: int, without: str | None = None) -> dict[str, Any]:
        """The arguments for positions ``start`` to ``end`` after ``start`` others; one of them ``without`` a value."""
        done: dict[int, Tensor] = {}
        found: dict[str, Any] = {}
        for name, value in self.arguments.items():

            def part(tensor: Tensor, name: str = name) -> Tensor:
                return done.setdefault(id(tensor), self._part(name, tensor, start, end))

            found[name] = None if name == without else tree_map_only(Tensor, part, value)
        return found

    def numbers(self, start: int, end: int) -> Tensor:
        """The positions of a chunk, (batch, time)."""
        main = self.arguments[self.main]
        return torch.arange(start, end, device=main.device).expand(main.shape[1 - self.axis], -1)

    def _part(self, name: str, tensor: Tensor, start: int, end: int) -> Tensor:
        length, total, recorded = end - start, self.total, self.stream.leading[self.axis]
        if self._moves_with_main(name, tensor):
            return tensor.narrow(self.axis, start, length)
        if recorded != total:
            return tensor
        if "mask" in name or "bias" in name:
            square = tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2] == total
            tensor = tensor.narrow(-2, start, length) if square else tensor
            return tensor.narrow(-1, 0, end) if tensor.dim() and tensor.shape[-1] == total else tensor
        if any(word in name.lower() for word in ("pos", "rot", "rope", "freq", "cos", "sin", "ids")):
            last = tensor.dim() - (2 if tensor.is_floating_point() or tensor.is_complex() else 1)
            axis = next((axis for axis in range(last, -1, -1) if tensor.shape[axis] == total), None)
            return tensor if axis is None else tensor.narrow(axis, start, length)
        return tensor

    def _moves_with_main(self, name: str, tensor: Tensor) -> bool:
        """Whether an argument is the main one or lies beside it: the key and value of one self-attention."""
        main, leading = self.arguments[self.main], len(self.stream.leading)
        alike = tensor.shape[:leading] == main.shape[:leading] and tensor.dtype == main.dtype
        return tensor is main or (alike and tensor.dim() == main.dim() and "mask" not in name)
