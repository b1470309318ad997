"""The anatomy of a module without judgement: its sites, shapes, scale, masks, weights and influence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import nn

from attn_guard.anatomy import Site
from attn_guard.collection import no_collection
from attn_guard.contract import Contract, declared_contract
from attn_guard.errors import UsageError
from attn_guard.findings import Location
from attn_guard.probe import chain
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.bare import Bare, bare_traces
from attn_guard.probe.batches import Batches
from attn_guard.probe.cached_masks import Opened, opened
from attn_guard.probe.calling import Call, arguments, given, is_of_torch
from attn_guard.probe.contractions import LostLetter, lost_letters
from attn_guard.probe.copies import with_copies
from attn_guard.probe.declined import Declined, declined
from attn_guard.probe.decoding import mismatch
from attn_guard.probe.evidence import CausalEvidence
from attn_guard.probe.fills import WeakFill, weak_fill
from attn_guard.probe.flow import Flow
from attn_guard.probe.fused import FusedCall, fused_call
from attn_guard.probe.grouping import Contradiction, contradictions
from attn_guard.probe.handed import Handed
from attn_guard.probe.hygiene import one_thread, preserved
from attn_guard.probe.intent import Intent, infer
from attn_guard.probe.leak import Leak, leak_of
from attn_guard.probe.memory import Cross, cross
from attn_guard.probe.mismatch import Mismatch
from attn_guard.probe.mixing import Mixing, mixing_of
from attn_guard.probe.normaliser import Normaliser
from attn_guard.probe.order import Order
from attn_guard.probe.packing import PackedRun, packed_run
from attn_guard.probe.padding import PaddedRun, padded_runs
from attn_guard.probe.parity import Divergence, divergences
from attn_guard.probe.paths import ASKING
from attn_guard.probe.positions import AddedTable, LeftPadded, added_tables, attends_along_time, is_blind, left_padded
from attn_guard.probe.qkv_cuts import OtherCut, Thirds, equal_thirds, other_cuts
from attn_guard.probe.record import record
from attn_guard.probe.reshapes import SwappingReshape, swapping_reshapes
from attn_guard.probe.returned import Returned, returned_maps
from attn_guard.probe.rotary import shifted
from attn_guard.probe.round_trip import Misplaced, misplaced
from attn_guard.probe.running import running_traces
from attn_guard.probe.sites import Trace, traces, without_value
from attn_guard.probe.streams import Streams
from attn_guard.probe.suggesting import suggested
from attn_guard.probe.tape import Op, Tape
from attn_guard.probe.training import Dropout, Modes, Run
from attn_guard.probe.weighing import Weighing, weighings
from attn_guard.probe.wiring import Wiring, idle_output
from attn_guard.probe.wrappers import original


@dataclass(frozen=True, repr=False)
class XRay:
    """One recorded call of a module. ``print(xray)`` draws the chain of shapes of each attention computation.

    ``sites[i].weights`` are the attention weights, ``sites[i].site`` the anatomy with its steps and source lines;
    ``streams`` are the inputs as positions, and which outputs they have influence on.
    """

    module: nn.Module
    call: Call
    tape: Tape
    intent: Intent
    sites: tuple[Anatomy, ...]
    streams: Streams
    seed: int = 0

    def __repr__(self) -> str:
        count = len(self.sites) + len(self.pooled)
        return f"<XRay of {type(self.module).__name__}{self.call}: {count} attention computations>"

    def __str__(self) -> str:
        title = type(self.module).__name__
        drawn = [*map(chain.draw, self.sites), *(chain.draw_pooling(site, title) for site in self.pooled)]
        return "\n\n".join(drawn) or "no attention found"

    @property
    def contract(self) -> Contract:
        return self.intent.contract

    @cached_property
    def handed(self) -> Handed:
        """The mask arguments of the module, handed over in several ways."""
        return Handed(self)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (*self.intent.assumptions, *self.handed.assumptions)

    def promised(self, promise: str) -> bool:
        """Whether a promise was declared, not inferred."""
        if promise in (self.intent.declared.masks or {}):
            return True
        return getattr(self.intent.declared, promise, None) is not None

    @cached_property
    def bare(self) -> tuple[Bare, ...]:
        """Products of query, key and value without a softmax."""
        flow = self.sites[0].trace.flow if self.sites else Flow.of(self.tape)
        found = bare_traces(flow, [site.trace for site in self.sites])
        return tuple(Bare(Anatomy(trace, self.module, self.intent.declared.scale, self.seed)) for trace in found)

    @property
    def normalisers(self) -> tuple[Normaliser, ...]:
        """How the context of linear attention is normalised."""
        return tuple(map(Normaliser, (*(bare.trace for bare in self.bare if bare.is_linear), *self.running)))

    def idle_output(self, linear: Normaliser) -> str:
        """The output projection of linear attention that is left out; "" where it has one, or none to leave out."""
        return idle_output(self.module, linear.trace, linear.parameters, linear.merged_width)

    @cached_property
    def running(self) -> tuple[Trace, ...]:
        """Causal linear attention, by running sums."""
        return tuple(running_traces(self.sites[0].trace.flow if self.sites else Flow.of(self.tape)))

    @cached_property
    def declined(self) -> tuple[Declined, ...]:
        """What looks like attention and is left alone, each with its reason."""
        return tuple(declined(self))

    @cached_property
    def weighings(self) -> tuple[Weighing, ...]:
        """Weights by a softmax that no product of query and key has made, and what they weigh."""
        taken = {op.index for bare in self.bare for op in (bare.trace.scores, bare.trace.context)}
        known = {site.trace.softmax.output for site in self.sites}
        return tuple(weighings(self.flow, known, taken))

    @cached_property
    def pooled(self) -> tuple[Site, ...]:
        """The sites of attention pooling and of additive attention."""
        return tuple(one.site for one in self.weighings if one.is_over_positions)

    @property
    def judged_sites(self) -> tuple[Site, ...]:
        """Every site that a statement about an anatomy is put to: those of attention, and of what has masks like it."""
        return (*(anatomy.site for anatomy in self.sites), *(one.site for one in self.weighings))

    @cached_property
    def weak_fills(self) -> tuple[WeakFill, ...]:
        """Biases that hide later keys of a causal module only while its scores are small."""
        found = (weak_fill(site) for site in self.sites) if self.contract.causal else ()
        return tuple(weak for weak in found if weak is not None)

    @cached_property
    def orders(self) -> tuple[Order, ...]:
        """For each attention computation, which keys its queries see."""
        return tuple(Order(site) for site in self.sites)

    @cached_property
    def leak(self) -> Leak | None:
        """Where a module that promises to be causal looks ahead; None where it does not, or promises nothing."""
        return leak_of(self)

    @cached_property
    def lost_letters(self) -> tuple[LostLetter, ...]:
        """Axes that einsums of the attention lose before their product."""
        return tuple(lost_letters(self.flow))

    @cached_property
    def flow(self) -> Flow:
        """What the operations of the run do."""
        return self.sites[0].trace.flow if self.sites else Flow.of(self.tape)

    @cached_property
    def swapping_reshapes(self) -> tuple[SwappingReshape, ...]:
        """Reshapes around the attention that stand where two axes should be swapped."""
        return tuple(swapping_reshapes(self.flow, [site.trace for site in self.sites]))

    @cached_property
    def mixing(self) -> Mixing | None:
        """Where samples of the batch come to have influence on each other."""
        return mixing_of(self)

    @cached_property
    def packed(self) -> PackedRun | None:
        """What a call with several documents in a row shows, where an argument for their ids is declared."""
        return packed_run(self)

    @cached_property
    def divergences(self) -> tuple[Divergence, ...]:
        """Ways through the module that should give the same and do not."""
        return tuple(divergences(self)) if self.tape.failure is None and self.sites else ()

    @cached_property
    def grouping_contradictions(self) -> tuple[Contradiction, ...]:
        """Heads of queries that meet other heads of keys than the module states elsewhere."""
        return tuple(contradictions(self.sites, self.divergences))

    @cached_property
    def equal_thirds(self) -> tuple[Thirds, ...]:
        """Fused projections cut in equal thirds although there are fewer heads of keys than of queries."""
        return tuple(equal_thirds(self.module, self.flow))

    @cached_property
    def other_cuts(self) -> tuple[OtherCut, ...]:
        """Fused projections that another path through the module cuts in another order."""
        return tuple(other_cuts(self.divergences))

    @cached_property
    def batches(self) -> Batches:
        """The samples of the call, as the attention sees them."""
        return Batches(self.module, self.flow, self.streams, self.sites)

    @cached_property
    def padded(self) -> tuple[PaddedRun, ...]:
        """What calls with padding show, one for each mask argument whose meaning is promised."""
        return tuple(padded_runs(self))

    @cached_property
    def wirings(self) -> tuple[Wiring, ...]:
        """Which parameters project what, for each attention computation."""
        return tuple(Wiring(site, self.module) for site in self.sites)

    @cached_property
    def cross(self) -> Cross | None:
        """The two inputs of a cross attention, where one is declared or evident."""
        return cross(self.module, self.call, self.tape, self.contract, self.streams.all)

    @property
    def returned(self) -> tuple[Returned, ...]:
        """The maps of queries by keys among what the module returns."""
        return tuple(found for site in self.sites for found in returned_maps(site))

    @cached_property
    def showing(self) -> XRay:
        """The same call with the weights asked for, where an argument of ``forward`` does that; else this one."""
        given = arguments(self.module, self.call)
        asking = [name for name, value in given.items() if name in ASKING and not value]
        again = self.again(self.call.with_argument(self.module, asking[0], True)) if asking else self
        return self if again.tape.failure is not None else again

    @property
    def without_value(self) -> list[Op]:
        """Softmaxes of attention scores whose weights nothing is made of."""
        return [] if self.tape.failure is not None else without_value(Flow.of(self.tape))

    @cached_property
    def fused_calls(self) -> tuple[FusedCall, ...]:
        """The fused calls that hand-written attention can be replaced with, one for each line."""
        found = {site.trace.scores.place: fused_call(site) for site in self.sites}
        return tuple(call for call in found.values() if call is not None)

    @property
    def is_built_in(self) -> bool:
        """Whether the module is a layer of torch itself."""
        return is_of_torch(self.module)

    @property
    def dropouts(self) -> list[Dropout]:
        """What drops by chance although the run is one in evaluation mode."""
        return Run(self.tape).dropouts

    @cached_property
    def modes(self) -> Modes:
        """The same call with dropout at work, in training and in evaluation mode."""
        return Modes(self.module, self.call, self.seed)

    @cached_property
    def decoded(self) -> Mismatch | None:
        """Where decoding with the module's cache differs from the full pass; None where it does not, or has none."""
        return mismatch(self)

    @cached_property
    def opened_with_cache(self) -> Opened | None:
        """Where decoding sees keys that the full pass hides; None where it does not."""
        return opened(self)

    @cached_property
    def decoded_at_other_angles(self) -> tuple[Location, int] | None:
        """Where a decoded chunk is turned by the rotary angle of another position: the place, and that position.

        A cache that is too short is a mistake of its own, which brings this about.
        """
        found = self.decoded
        if found is None or found.error is not None or found.short is not None:
            return None
        other = shifted(found.alignment)
        return None if other is None else (other[0].location, other[1])

    @cached_property
    def is_blind(self) -> bool:
        """Whether the order of the inputs makes no difference."""
        return is_blind(self)

    @property
    def without_positions(self) -> Location:
        """Where positions are missing: where the ids are looked up that they would be added to, or else where the first
        scores are made."""
        main = self.streams.main
        lookup = None if main is None else self.tape.maker(main.rows.value)
        return (self.sites[0].trace.scores if lookup is None else lookup).location

    @cached_property
    def misplaced(self) -> Misplaced | None:
        """Where what an attention makes of one position comes out at another, for want of swapped axes."""
        found = (misplaced(site, self.seed) for site in self.sites) if len(self.sites) == 1 else iter(())
        return next((one for one in found if one is not None), None)

    @cached_property
    def added_tables(self) -> tuple[AddedTable, ...]:
        """What is added to the features before the first attention and comes from no input."""
        return tuple(added_tables(self))

    @cached_property
    def attends_along_time(self) -> bool:
        """Whether the first attention runs along the axis that is taken for time."""
        return attends_along_time(self)

    @cached_property
    def left_padded(self) -> LeftPadded | None:
        """What padding on the left changes for the tokens themselves; None for nothing."""
        return left_padded(self)

    def again(self, call: Call) -> XRay:
        """The same module, of which the same is promised, under another call."""
        with preserved(self.module, self.seed):
            return look(self.module, call, self.intent.declared, self.seed, self)


def look(module: nn.Module, call: Call, declared: Contract, seed: int = 0, known: XRay | None = None) -> XRay:
    """Record a call and recover its anatomy. The caller keeps the module's state (`preserved`).

    What is ``known`` of the module from another call is not inferred anew.
    """
    fresh = with_copies(call)
    tape = record(module, fresh.args, fresh.kwargs, fresh.names(module))
    flow = Flow.of(tape, declared.masks or ())
    found = traces(flow)
    before = known.sites if known is not None and len(known.sites) == len(found) else [None] * len(found)
    sites = tuple(
        Anatomy(trace, module, declared.scale, seed, other) for trace, other in zip(found, before, strict=True)
    )
    streams = Streams(tape, call.batch_first, [site.influence for site in sites], bool(declared.cross), seed)
    if known is not None:
        intent = known.intent
    else:
        intent = infer(module, declared, CausalEvidence(module, tape, sites, streams, arguments(module, call)))
    return XRay(module, call, tape, intent, sites, streams, seed)


@no_collection()
def find_call(module: nn.Module, declared: Contract, seed: int = 0) -> tuple[XRay | None, list[str]]:
    """The first suggested call that runs and shows attention (or else the first that runs), and what was tried.

    Where none runs, the recording of the first call is returned with its failure.
    """
    tried: list[str] = []
    ran: XRay | None = None
    failed: XRay | None = None
    for call in suggested(module, declared, seed):
        with preserved(module, seed):
            seen = look(module, call, declared, seed)
        if seen.tape.failure is None:
            if seen.sites or seen.pooled:
                return seen, tried
            ran = ran or seen
            tried.append(f"{call}: ran, but showed no attention")
        else:
            failed = failed or seen
            tried.append(f"{call}: {_brief(seen.tape.failure)}")
        if len(tried) >= 24:
            break
    return ran or failed, tried


def _brief(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:160] if text else ''}"


def xray(module: nn.Module, args: Any = None, kwargs: Mapping[str, Any] | None = None, *, seed: int = 0) -> XRay:
    """Run a module once and show what its attention is made of.

    ``args`` is a tuple of positional arguments (or a single tensor), ``kwargs`` the keyword arguments; without
    either the module is
    called as its signature suggests. Raises `UsageError` where that is not possible, and what the module raises on
    given arguments.
    """
    if not isinstance(module, nn.Module):
        raise UsageError(f"xray() takes a torch.nn.Module, got {type(module).__name__}")
    module = original(module)
    with one_thread():
        return _seen(module, args, kwargs, declared_contract(module), seed)


def _seen(module: nn.Module, args: Any, kwargs: Mapping[str, Any] | None, declared: Contract, seed: int) -> XRay:
    if args is None and kwargs is None:
        found, tried = find_call(module, declared, seed)
        if found is None or found.tape.failure is not None:
            raise UsageError(
                f"{type(module).__name__} could not be called; pass args= and kwargs=. Tried: {'; '.join(tried)}"
            )
        return found
    with preserved(module, seed):
        seen = look(module, given(args, kwargs, declared, module), declared, seed)
    if seen.tape.failure is not None:
        raise seen.tape.failure
    return seen
