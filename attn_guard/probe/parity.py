"""Compares the ways through a module that should give the same, on the same weights, inputs and seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isclose
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attn_guard.findings import Location
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.deliveries import masked_by
from attn_guard.probe.flow import Flow
from attn_guard.probe.order import Order
from attn_guard.probe.padding import PaddedRun
from attn_guard.probe.paths import Path, has_code_of_its_own, switched, with_and_without
from attn_guard.probe.replay import Replay, ReplayError
from attn_guard.probe.sites import traces
from attn_guard.probe.tape import Tape

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay

# Of an output's largest number. Rounding of one dtype stays below the first; what float64 shows beyond the third is
# none. (Constants that were computed in float32 differ in their 8th digit.)
EQUAL = 8.0
CLEAR = 1e3
IN_DOUBLE = 1e-6


@dataclass(frozen=True)
class Side:
    """One of two ways, as recorded: ``text`` is how it was chosen, "" for the call itself."""

    text: str
    tape: Tape
    sites: tuple[Anatomy, ...]

    @cached_property
    def orders(self) -> tuple[Order, ...]:
        return tuple(Order(site) for site in self.sites)


@dataclass(frozen=True)
class Divergence:
    """Two ways whose outputs differ by ``difference`` of their size."""

    usual: Side
    other: Side
    difference: float
    training: bool

    @cached_property
    def dropped(self) -> tuple[Side, Anatomy, int] | None:
        """(side, site, number of keys) where one side sees every key that the other does, and others that are blocked
        there."""
        for ours, theirs in zip(self.usual.orders, self.other.orders, strict=False):
            here, there = ours.seen, theirs.seen
            if here is None or there is None or here.shape != there.shape:
                continue
            known = ours.judged & theirs.judged
            here, there = here & known, there & known
            if bool((here == there).all()):
                continue
            if bool((here <= there).all()):
                return self.other, theirs.anatomy, int((there & ~here).sum())
            if bool((there <= here).all()):
                return self.usual, ours.anatomy, int((here & ~there).sum())
        return None

    @property
    def place(self) -> Location:
        """The first attention whose scale or weights differ, on the side whose scale is not the right one."""
        for ours, theirs in zip(self.usual.sites, self.other.sites, strict=False):
            scales = ours.scale, theirs.scale
            if None not in scales and scales[0] != scales[1]:
                wrong = ours if _is_meant(theirs) and not _is_meant(ours) else theirs
                return wrong.trace.scores.location
            if _differ(ours.final_weights, theirs.final_weights):
                return theirs.trace.softmax.location
        sites = self.other.sites or self.usual.sites
        return sites[-1].trace.context.location if sites else Location("<probe>", 0)


def _is_meant(site: Anatomy) -> bool:
    """Whether the scale is the one that is declared, or else 1/√head_dim."""
    if site.scale is None or site.declared_scale is None:
        return site.scale is not None and site.scale.is_right
    return site.scale.value is not None and isclose(site.scale.value, site.declared_scale, rel_tol=2e-3)


def _differ(ours: Tensor | None, theirs: Tensor | None) -> bool:
    if ours is None or theirs is None:
        return False
    if ours.shape != theirs.shape:
        return True
    return bool(((ours - theirs).abs().nan_to_num() > 1e-4).any())


def divergences(xray: XRay) -> Iterator[Divergence]:
    """Each way through the module that differs from the call itself; with padding, where a padding mask is promised."""
    usual, keep, call = Side("", xray.tape, xray.sites), None, xray.call
    if not has_code_of_its_own(xray.module) or _is_random(xray.tape):
        return
    for name, meaning in (xray.contract.masks or {}).items():
        nothing = _blocks_nothing(xray, name)
        if nothing is not None:
            for path in with_and_without(xray.module, call, name, nothing, meaning):
                yield from _compared(xray, usual, path, None)
    for padded in xray.padded[:1]:
        if padded.sites:
            usual, keep, call = Side("", padded.sites[0].trace.flow.tape, padded.sites), _real(padded), padded.call
    for path in switched(xray.module, call, [site.trace.module for site in xray.sites]):
        yield from _compared(xray, usual, path, keep)


def _real(padded: PaddedRun) -> Tensor | None:
    """(batch, time) real tokens of the output; None where all are, since the padding is in the memory."""
    stream, main = padded.delivery.stream, padded.delivery.main
    return padded.keep if main is None or stream.leading == main.leading else None


def _blocks_nothing(xray: XRay, name: str) -> Tensor | None:
    """(batch, time) True everywhere, of the stream that a mask argument speaks of: the main one, where it can be."""
    streams = masked_by(xray, name)
    stream = next((one for one in streams if one is xray.streams.main), next(iter(streams), None))
    if stream is None:
        return None
    shape = stream.leading if stream.time_axis == 1 else stream.leading[::-1]
    return torch.ones(shape, dtype=torch.bool, device=xray.tape.values[stream.rows.value].device)


def _compared(xray: XRay, usual: Side, path: Path, keep: Tensor | None) -> Iterator[Divergence]:
    tape = path.run(xray.module, xray.seed)
    if tape.failure is not None or _is_random(tape) or (path.training and _learns(tape)):
        return
    difference = _difference(xray, usual.tape, tape, keep)
    if difference:
        sites = tuple(Anatomy(trace, xray.module, xray.contract.scale, xray.seed) for trace in traces(Flow.of(tape)))
        yield Divergence(usual, Side(path.text, tape, sites), difference, path.training)


def _is_random(tape: Tape) -> bool:
    """Whether chance has a part in what is returned."""
    return tape.draws_elsewhere or any(op.random and not tape.alive.isdisjoint(op.outputs) for op in tape.ops)


def _learns(tape: Tape) -> bool:
    """Whether the run writes into parameters or buffers, as statistics that follow the data do."""
    return any(tape.leaves.get(value, "").startswith(("parameter", "buffer")) for op in tape.ops for value in op.writes)


def _difference(xray: XRay, usual: Tape, other: Tape, keep: Tensor | None) -> float:
    """How much the outputs at real tokens differ, of their largest number; 0.0 where that is rounding."""
    places = _outputs(xray, usual, other)
    if places is None:
        return 0.0
    single = _relative(usual.values[places[0]], other.values[places[1]], keep)
    precision = torch.finfo(usual.values[places[0]].dtype).eps
    if single <= EQUAL * precision:
        return 0.0
    try:
        double = _relative(_in_double(usual, places[0]), _in_double(other, places[1]), keep)
    except ReplayError:
        return single if single > CLEAR * precision else 0.0
    return double if double > IN_DOUBLE else 0.0


def _outputs(xray: XRay, usual: Tape, other: Tape) -> tuple[int, int] | None:
    """The values on both tapes of the first returned tensor that is of one shape on both."""
    ours, theirs = usual.results(), other.results()
    main = xray.streams.output
    first = xray.tape.results().index(main) if main in xray.tape.results() else 0
    if first >= min(len(ours), len(theirs)):
        return None
    left, right = ours[first], theirs[first]
    a, b = usual.values[left], other.values[right]
    return (left, right) if a.shape == b.shape and a.is_floating_point() and b.is_floating_point() else None


def _in_double(tape: Tape, output: int) -> Tensor:
    sources = [value for value in tape.leaves if tape.values[value].is_floating_point()]
    return Replay(tape, sources, [output], double=True)({value: tape.values[value].double() for value in sources})[
        output
    ]


def _relative(ours: Tensor, theirs: Tensor, keep: Tensor | None) -> float:
    """The largest difference at real tokens, of the largest number; what is not finite is left out."""
    if keep is not None:
        if ours.shape[:2] not in (keep.shape, keep.t().shape):
            return 0.0
        real = keep if ours.shape[:2] == keep.shape else keep.t()
        ours, theirs = ours[real], theirs[real]
    both = ours.isfinite() & theirs.isfinite()
    if not both.any():
        return 0.0
    size = float(ours[both].abs().max()) or 1.0
    return float((ours[both].double() - theirs[both].double()).abs().max()) / size
