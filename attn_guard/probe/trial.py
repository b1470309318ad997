"""Whether a call runs at all, tried without a recording, which costs several times as much."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from attn_guard.probe.calling import Call
from attn_guard.probe.copies import with_copies
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.record import uncompiled, unfused, written


def runs(module: nn.Module, call: Call, seed: int = 0) -> bool:
    """Whether a call of a module raises nothing. What it writes is undone."""
    own, writes = with_copies(call), _Writes()
    with preserved(module, seed), torch.no_grad(), unfused(), uncompiled():
        try:
            with writes:
                module(*own.args, **own.kwargs)
        except Exception:
            return False
        finally:
            writes.undo()
    return True


class _Writes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps what tensors held before they were written to."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._kept: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for tensor in written(func, args, kwargs or {}):
            if id(tensor) not in self._kept:
                # the second keeps its shape where that of the first is changed in place
                self._kept[id(tensor)] = (tensor, tensor.detach(), tensor.detach().clone())
        return func(*args, **(kwargs or {}))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def undo(self) -> None:
        """Puts everything back, the last write first."""
        for tensor, memory, before in reversed(self._kept.values()):
            memory.copy_(before)
            if tensor.shape != memory.shape:
                tensor.data = memory
