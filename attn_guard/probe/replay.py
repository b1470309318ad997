"""Runs part of a tape again with some values changed.

Only the operations that depend on a changed value run; the rest keep their recorded values. The user's code is
not called again, so that every operation lines up with its recording.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only

from attn_guard.probe.tape import Op, Ref, Tape


class ReplayError(Exception):
    """An operation could not be run again with the changed values."""


class Replay:
    """Replays from the values ``sources`` to the values ``targets``, any number of times.

    >>> replay = Replay(tape, sources=[x], targets=[scores])
    >>> replay({x: changed})[scores]
    """

    def __init__(self, tape: Tape, sources: Collection[int], targets: Collection[int]) -> None:
        self.tape = tape
        self.targets = tuple(targets)
        reached = tape.descendants(set(sources))
        needed: set[int] = set(targets)
        plan: list[Op] = []
        for op in reversed(tape.ops):
            if needed.isdisjoint(op.outputs) or reached.isdisjoint(op.inputs):
                continue
            if op.random and "dropout" not in op.name:
                continue
            if any(output in sources for output in op.outputs):
                continue
            plan.append(op)
            needed.update(op.inputs)
        self.plan = plan[::-1]

    def __call__(self, changed: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Target → its value when the ``changed`` values take the place of the recorded ones.

        Raises `ReplayError` where an operation fails on them.
        """
        values: dict[int, Tensor] = dict(changed)
        with torch.no_grad():
            for op in self.plan:
                if values.keys().isdisjoint(op.inputs):
                    continue
                try:
                    self._run(op, values)
                except Exception as error:
                    raise ReplayError(f"{op.name}: {error}") from error
        return {target: values.get(target, self.tape.values[target]) for target in self.targets}

    def _run(self, op: Op, values: dict[int, Tensor]) -> None:
        fresh = set(op.writes)

        def value(ref: Ref) -> Tensor:
            current = values.get(ref.index)
            tensor = self.tape.values[ref.index] if current is None else current
            return _copy(tensor) if ref.index in fresh else tensor

        args, kwargs = tree_map_only(Ref, value, (op.args, op.kwargs))
        outputs: tuple[Tensor, ...]
        if op.name == "native_dropout":
            outputs = _same_dropout(self.tape.values[op.outputs[1]], *args)
        else:
            outputs = tuple(leaf for leaf in tree_flatten(op.run(*args, **kwargs))[0] if isinstance(leaf, Tensor))
            if op.writes and len(outputs) < len(op.outputs):
                outputs = (*outputs, *_written_again(op, args))
        values.update(zip(op.outputs, outputs, strict=False))


def _copy(tensor: Tensor) -> Tensor:
    return tensor.clone()


def _same_dropout(mask: Tensor, value: Tensor, p: float, train: bool | None = True) -> tuple[Tensor, Tensor]:
    """Dropout with the draw of the recorded run."""
    return (value * mask / (1 - p) if train else value, mask)


def _written_again(op: Op, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """The tensors that an in-place operation wrote without returning them."""
    flags = [argument.alias_info is not None and argument.alias_info.is_write for argument in op.run._schema.arguments]  # type: ignore[attr-defined]
    return tuple(arg for arg, flag in zip(args, flags, strict=False) if flag and isinstance(arg, Tensor))
