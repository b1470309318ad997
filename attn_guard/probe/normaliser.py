"""What divides the context of attention by feature maps: φ(q) (φ(k)ᵀ v) over φ(q) Σ φ(k), Katharopoulos et al. 2020."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attn_guard.findings import Location
from attn_guard.probe.flow import operands, stacked
from attn_guard.probe.masks import is_norm
from attn_guard.probe.replay import Replay
from attn_guard.probe.sites import Trace, projection_of
from attn_guard.probe.tape import Op
from attn_guard.probe.wiring import parameter_of

_DIVISIONS = frozenset({"div", "div_", "true_divide"})
# How far from one an average of ones may be, for a small number that is added to the divisor.
_CLOSE = 0.02


@dataclass(frozen=True)
class Normaliser:
    """Linear attention, and how its context is normalised."""

    trace: Trace

    @property
    def is_expected(self) -> bool:
        """Whether the features of query and key are those of a kernel: positive, and not normalised by themselves."""
        values, trace = self.trace.flow.tape.values, self.trace
        keys = [values[part] for part in operands(trace.scores)]
        return _is_kernel(values[trace.value]) and any(_is_kernel(part) for part in keys)

    @cached_property
    def way(self) -> list[Op]:
        """The operations from the context to the output projection, or to a result where there is none."""
        tape, context = self.trace.flow.tape, self.trace.context.output
        if self.trace.merged is not None:
            return self.trace.merge
        ends = (result for result in tape.results() if context in tape.ancestors(result))
        end = next(ends, None)
        return [] if end is None else self.trace.flow.chain(context, end)

    @property
    def parameters(self) -> set[str]:
        """The parameters that project query, keys and values; none where one of them is not projected."""
        flow = self.trace.flow
        found = [projection_of(flow, part) for part in (*operands(self.trace.scores), self.trace.value)]
        names = {parameter_of(flow.tape, projection.weight) for projection in found if projection is not None}
        return names - {""} if None not in found else set()

    @property
    def merged_width(self) -> int:
        """How many features a position has at the end of the way."""
        end = self.way[-1] if self.way else self.trace.context
        return int(self.trace.flow.tape.values[end.output].shape[-1])

    @property
    def is_replaced(self) -> bool:
        """Whether the context passes a norm of its own on its way out (RetNet)."""
        return any(is_norm(op) for op in self.way)

    @cached_property
    def division(self) -> Op | None:
        """The operation that divides the context by something made of content."""
        flow = self.trace.flow
        divisions = (op for op in self.way if op.name in _DIVISIONS and len(op.inputs) == 2)
        return next((op for op in divisions if op.inputs[1] in flow.content), None)

    @cached_property
    def is_average(self) -> bool:
        """Whether the weights sum to one: values of one come out as ones, but for queries that are masked."""
        tape, trace = self.trace.flow.tape, self.trace
        outputs = [trace.context.output, *(op.output for op in self.way)]
        for part in operands(trace.scores):
            again = Replay(tape, [part], outputs)({part: torch.ones_like(tape.values[part])})
            if any(_are_ones(again[output]) for output in outputs):
                return True
        return False

    @property
    def is_shared(self) -> bool:
        """Whether all queries of a head are divided by one number."""
        values = self.trace.flow.tape.values
        if self.division is None:
            return False
        slices, queries, _ = stacked(values[self.trace.value]).shape
        return queries > 1 and values[self.division.inputs[1]].numel() <= slices

    @property
    def location(self) -> Location:
        return (self.division or self.trace.context).location


def _are_ones(context: Tensor) -> bool:
    """Whether most numbers are one; a sum of weights that are nearly zero may be anything."""
    known = context[context != 0].float()
    return bool(len(known)) and bool(((known - 1).abs() < _CLOSE).float().mean() > 0.9)


def _is_kernel(features: Tensor) -> bool:
    sums = (features.float().sum(dim=axis) for axis in (-1, -2))
    return bool((features >= 0).all()) and not any(bool(((total - 1).abs() < 1e-3).all()) for total in sums)
