"""Runs part of a tape again with some values changed.

Only the operations that depend on a changed value run; the rest keep their recorded values. The user's code is
not called again, so that every operation lines up with its recording.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map_only, tree_unflatten

from attn_guard.probe.tape import Op, Ref, Tape


class ReplayError(Exception):
    """An operation could not be run again with the changed values."""


# Operations that choose places by the numbers there, and the axis along which they choose. Experts, buckets and sparse
# keys are chosen so, and Python often reads the choice; hence it stays as it was recorded, like any choice of Python's.
# The largest and the smallest are a choice only where something reads which one it is.
CHOICES: dict[str, Callable[..., int | None]] = {
    "topk": lambda value, k, dim=-1, *_, **__: dim,
    "sort": lambda value, dim=-1, *_, **__: dim,
    "argmax": lambda *_, **__: None,
    "argmin": lambda *_, **__: None,
    "max": lambda value, dim=0, *_, **__: dim,
    "min": lambda value, dim=0, *_, **__: dim,
}
_EXTREMES = ("max", "min")
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)


class Replay:
    """Replays from the values ``sources`` to the values ``targets``, any number of times.

    >>> replay = Replay(tape, sources=[x], targets=[scores])
    >>> replay({x: changed})[scores]

    With ``double``, everything is computed in float64, whatever the dtype of the recording: a second opinion where a
    difference may be rounding.
    """

    def __init__(self, tape: Tape, sources: Collection[int], targets: Collection[int], *, double: bool = False) -> None:
        self.tape = tape
        self.targets = tuple(targets)
        self._recorded: Sequence[Tensor] = _Doubled(tape.values) if double else tape.values
        self._plan = [instruction(tape, op, double) for op in _needed(tape, set(sources), set(targets))]

    def __call__(self, changed: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Target → its value when the ``changed`` values take the place of the recorded ones.

        Raises `ReplayError` where an operation fails on them.
        """
        values: dict[int, Tensor] = dict(changed)
        with torch.no_grad():
            for instruction in self._plan:
                try:
                    instruction.run(values, self._recorded)
                except Exception as error:
                    raise ReplayError(f"{instruction.op.name}: {error}") from error
        return {target: values[target] if target in values else self._recorded[target] for target in self.targets}


class _Doubled(Sequence[Tensor]):
    """Recorded values in float64."""

    def __init__(self, values: list[Tensor]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> Any:
        value = self._values[index]
        return value.double() if value.is_floating_point() else value


def _in_double(arguments: Any) -> Any:
    return tree_map_only(torch.dtype, lambda dtype: torch.float64 if dtype.is_floating_point else dtype, arguments)


def _needed(tape: Tape, sources: set[int], targets: set[int]) -> list[Op]:
    """The operations between sources and targets, in order. Random ones keep their draw, so they do not run again."""
    reached = tape.descendants(frozenset(sources))
    needed = set(targets)
    plan: list[Op] = []
    for op in reversed(tape.ops):
        if needed.isdisjoint(op.outputs) or reached.isdisjoint(op.inputs) or not sources.isdisjoint(op.outputs):
            continue
        if op.random and op.name != "native_dropout":
            continue
        plan.append(op)
        needed.update(op.inputs)
    return plan[::-1]


def instruction(tape: Tape, op: Op, double: bool = False) -> Instruction:
    """An operation of a tape, made ready to run on other values; once for all replays."""
    return tape.prepared(op, double, partial(Instruction, tape))


class Instruction:
    """An operation made ready to run on other values: its arguments as a flat list with the places of its inputs."""

    def __init__(self, tape: Tape, op: Op, double: bool) -> None:
        self.op = op if not double else replace(op, args=_in_double(op.args), kwargs=_in_double(op.kwargs))
        op = self.op
        self._structure: TreeSpec | None = None
        self._flat: list[Any] = list(op.args)
        named = op.kwargs.values()
        if any(map(_is_list_of_values, (*op.args, *named))) or any(isinstance(given, Ref) for given in named):
            self._flat, self._structure = tree_flatten((op.args, op.kwargs))
        leaves = [(place, leaf.index) for place, leaf in enumerate(self._flat) if isinstance(leaf, Ref)]
        self._inputs = [(place, index, index in op.writes) for place, index in leaves]
        # a reshape for a view, since a changed value may lie in memory in another way
        self._run: Callable[..., Any] = torch.reshape if op.run in _VIEWS else op.run
        self._is_plain = op.name != "native_dropout" and not _chooses(tape, op)

    def run(self, values: dict[int, Tensor], recorded: Sequence[Tensor]) -> None:
        """Adds the operation's outputs to ``values``."""
        op, flat = self.op, self._flat.copy()
        for place, index, is_written in self._inputs:
            tensor = values[index] if index in values else recorded[index]
            flat[place] = tensor.clone() if is_written else tensor
        args, kwargs = (flat, op.kwargs) if self._structure is None else tree_unflatten(flat, self._structure)
        if not self._is_plain:
            values.update(zip(op.outputs, self._chosen(args, kwargs, recorded), strict=False))
            return
        result = self._run(*args, **kwargs)
        if isinstance(result, Tensor) and len(op.outputs) == 1:
            values[op.outputs[0]] = result
            return
        outputs = _tensors(result)
        if len(outputs) < len(op.outputs):
            outputs = (*outputs, *_written_again(op, args))
        values.update(zip(op.outputs, outputs, strict=False))

    def _chosen(self, args: Any, kwargs: Any, recorded: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What an operation makes that draws or chooses, with the draw or the choice of the recorded run."""
        op = self.op
        if op.name == "native_dropout":
            return _same_dropout(recorded[op.outputs[1]], *args)
        axis = CHOICES[op.name](*args, **kwargs)
        return _same_choice(recorded[op.outputs[-1]], axis, args[0], len(op.outputs))


def _chooses(tape: Tape, op: Op) -> bool:
    """Whether an operation chooses places, and they are read where it is not all that it does."""
    if op.name not in _EXTREMES:
        return op.name in CHOICES
    return len(op.outputs) == 2 and (
        next(tape.consumers(op.outputs[1]), None) is not None or op.outputs[1] in tape.results()
    )


def _is_list_of_values(argument: Any) -> bool:
    return isinstance(argument, list | tuple) and any(isinstance(leaf, Ref) for leaf in argument)


def _tensors(result: Any) -> tuple[Tensor, ...]:
    if isinstance(result, Tensor):
        return (result,)
    return tuple(leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, Tensor))


def _same_dropout(mask: Tensor, value: Tensor, p: float, train: bool | None = True) -> tuple[Tensor, ...]:
    """Dropout with the draw of the recorded run."""
    return (value * mask / (1 - p) if train else value, mask)


def _same_choice(places: Tensor, axis: int | None, value: Tensor, outputs: int) -> tuple[Tensor, ...]:
    """The places that the recorded run chose, and what stands there now."""
    if outputs == 1 or axis is None:
        return (places,)
    along = places if places.dim() == value.dim() else places.unsqueeze(axis)
    return value.gather(axis, along).view_as(places), places


def _written_again(op: Op, args: Sequence[Any]) -> tuple[Tensor, ...]:
    """The tensors that an in-place operation wrote without returning them."""
    arguments = op.run._schema.arguments  # type: ignore[attr-defined]
    flags = [argument.alias_info is not None and argument.alias_info.is_write for argument in arguments]
    return tuple(arg for arg, flag in zip(args, flags, strict=False) if flag and isinstance(arg, Tensor))
