"""Whether a call runs at all and reads an argument, tried without a recording, which costs several times as much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from attn_guard.probe.calling import Call, bound
from attn_guard.probe.copies import with_copies
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.record import uncompiled, unfused, written


@dataclass(frozen=True)
class Trial:
    """``ran``: nothing was raised; ``read``: some operation read the argument."""

    ran: bool
    read: bool


def tried(module: nn.Module, call: Call, argument: str, seed: int = 0) -> Trial:
    """What a call of a module does with one of its arguments. What it writes is undone."""
    own = with_copies(call)
    watched = _Watching(bound(module, own).get(argument))
    with preserved(module, seed), torch.no_grad(), unfused(), uncompiled():
        try:
            with watched:
                module(*own.args, **own.kwargs)
        except Exception:
            return Trial(ran=False, read=watched.read)
        finally:
            watched.undo()
    return Trial(ran=True, read=watched.read)


class _Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes whether a tensor is read, and keeps what tensors held before they are written to."""

    def __init__(self, argument: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read = False
        self._argument = argument
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = (*args, *(kwargs or {}).values())
        self.read = self.read or any(self._argument is leaf for value in given for leaf in _flat(value))
        for tensor in written(func, args, kwargs or {}):
            if id(tensor) not in self._kept:
                self._kept[id(tensor)] = (tensor, tensor.detach().clone())
        return func(*args, **(kwargs or {}))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def undo(self) -> None:
        """Puts everything back, the last write first."""
        for tensor, before in reversed(self._kept.values()):
            tensor.detach().copy_(before)


def _flat(value: Any) -> list[Any] | tuple[Any, ...]:
    """What an argument of an operator holds: operators take tensors, and lists of them."""
    return value if isinstance(value, list | tuple) else (value,)
