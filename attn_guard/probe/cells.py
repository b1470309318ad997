"""Where each score is found in the values computed from the scores, however their axes are moved on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from attn_guard.probe.flow import stacked
from attn_guard.probe.tape import Op, Ref, Tape

_MOVES = frozenset("transpose t permute movedim squeeze unsqueeze view _unsafe_view reshape".split())
_SCATTERS = frozenset("roll flip gather index index_select stack cat".split())


@dataclass(frozen=True)
class Cells:
    """The scores as a stack (slices, rows, columns), and where they go.

    ``numbers`` has the shape of a value on the way; each cell holds the flat number of the score that it came from.
    """

    shape: torch.Size
    numbers: Tensor

    @classmethod
    def of(cls, tape: Tape, scores: int, ops: Sequence[Op]) -> Cells | None:
        """The cells of the value that a chain of operations makes of the scores; None where they are not all kept."""
        shape = stacked(tape.values[scores]).shape
        numbers = torch.arange(shape.numel()).view(tape.values[scores].shape)
        for op in ops:
            if op.name in _MOVES:
                numbers = _moved(op, numbers)
            if tape.values[op.output].shape != numbers.shape or op.name in _SCATTERS:
                return None
        return cls(shape, numbers)

    def stack(self, value: Tensor) -> Tensor | None:
        """A value on the way, as a stack like the scores; None where it is not of the same cells."""
        if value.numel() != self.numbers.numel():
            return None
        flat = torch.empty_like(value.reshape(-1))
        flat[self.numbers.reshape(-1).to(value.device)] = value.reshape(-1)
        return flat.view(self.shape)


def _moved(op: Op, numbers: Tensor) -> Tensor:
    args: Any = tree_map_only(Ref, lambda ref: numbers, op.args)
    run = torch.reshape if op.name in {"view", "_unsafe_view", "reshape"} else op.run
    moved: Tensor = run(*args, **op.kwargs)
    return moved
