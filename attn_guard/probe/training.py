"""A run in training mode, where dropout shows its place.

Rates of 0 are raised meanwhile, so that dropout which this configuration turns off is seen as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from torch import nn

from attn_guard.anatomy import Stage
from attn_guard.probe.calling import Call, is_of_torch
from attn_guard.probe.copies import NotCopiedError, copied
from attn_guard.probe.dropout import dropouts
from attn_guard.probe.flow import Flow
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.record import record
from attn_guard.probe.returned import DroppedMap, dropped_maps
from attn_guard.probe.sites import Trace, traces
from attn_guard.probe.tape import Op, Tape
from attn_guard.probe.weighing import weighings

RAISED = 0.3

_LAYERS = nn.modules.dropout._DropoutNd
_STATISTICS = nn.modules.batchnorm._NormBase
# Rates of another kind: whole layers or residual branches are left out.
_OTHER_RATES = ("path", "layer", "connect")


@dataclass(frozen=True)
class Dropout:
    """A dropout of one attention computation: what it drops from, and whether its rate is 0 as configured."""

    stage: Stage
    op: Op
    raised: bool


@dataclass(frozen=True)
class Run:
    """A recorded call with dropout at work. ``raised`` are the paths of modules whose own rate is 0."""

    tape: Tape | None = None
    raised: frozenset[str] = frozenset()

    @cached_property
    def traces(self) -> tuple[Trace, ...]:
        """The attention computations; none where nothing random was computed at all."""
        return () if self._flow is None else tuple(traces(self._flow))

    @cached_property
    def _flow(self) -> Flow | None:
        return Flow.of(self.tape) if self.tape is not None and any(op.random for op in self.tape.ops) else None

    @cached_property
    def dropouts(self) -> list[Dropout]:
        found = [*chain.from_iterable(map(dropouts, self.traces))]
        if self._flow is not None:
            others = weighings(self._flow, {trace.softmax.output for trace in self.traces}, ())
            found += chain.from_iterable(one.dropouts for one in others if one.is_over_positions)
        return [Dropout(stage, op, self._is_raised(op.module)) for stage, op in found]

    @property
    def dropped_maps(self) -> list[DroppedMap]:
        """Returned maps that carry dropout of a rate above 0."""
        found = (one for trace in self.traces for one in dropped_maps(trace))
        return [one for one in found if not self._is_raised(one.op.module)]

    def _is_raised(self, path: str) -> bool:
        """Whether a module, or a dropout module that it holds, has a rate of 0."""
        return any(path in (owner, owner.rpartition(".")[0]) for owner in self.raised)


@dataclass(frozen=True)
class Modes:
    """A module under the same call in training mode, and in evaluation mode with rates above 0."""

    module: nn.Module
    call: Call
    seed: int = 0

    @cached_property
    def training(self) -> Run:
        """Shows nothing where nothing is named dropout, or where the module fails in training mode."""
        return self._run(training=True)

    @cached_property
    def evaluation(self) -> Run:
        """Shows nothing where all rates are above 0, or none is handed to a function: then the call itself shows
        all."""
        layers = {path for path, child in self.module.named_modules() if isinstance(child, _LAYERS)}
        handed = any(found.raised and found.op.module not in layers for found in self.training.dropouts)
        return self._run(training=False) if handed else Run()

    def _run(self, *, training: bool) -> Run:
        found = rates(self.module)
        if not found or is_of_torch(self.module):
            return Run()  # torch's own layers drop where they should
        try:
            args, kwargs = copied((self.call.args, self.call.kwargs))
        except NotCopiedError:
            return Run()
        call = replace(self.call, args=args, kwargs=kwargs)
        paths = {child: path for path, child in self.module.named_modules()}
        with preserved(self.module, self.seed):
            for child in self.module.modules():
                child.training = training and not isinstance(child, _STATISTICS)
            for owner, name, rate in found:
                if rate == 0.0:
                    vars(owner)[name] = RAISED
            tape = record(self.module, args, kwargs, call.names(self.module))
        if tape.failure is not None:
            return Run()
        raised = frozenset(paths[owner] for owner, _, rate in found if rate == 0.0)
        return Run(tape, raised)


def rates(module: nn.Module) -> list[tuple[nn.Module, str, float]]:
    """Every dropout rate of a module: the owner, the attribute and the rate."""
    found: list[tuple[nn.Module, str, float]] = []
    for child in module.modules():
        if isinstance(child, _LAYERS):
            found.append((child, "p", float(child.p)))
            continue
        for name, value in vars(child).items():
            named = "drop" in name.lower() and not any(word in name.lower() for word in _OTHER_RATES)
            if named and isinstance(value, float) and 0.0 <= value < 1.0:
                found.append((child, name, value))
    return found
