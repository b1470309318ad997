"""Hands masks over to a module: each mask argument in the first form that the module takes.

What True means in an argument is promised, or else found by trying: which keys are hidden when some entries are True.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from attn_guard.anatomy import Size
from attn_guard.contract import MaskMeaning
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.arrival import Arrival, Axes, arrivals
from attn_guard.probe.calling import as_mask, bound, is_of_torch, mask_parameters
from attn_guard.probe.dimensions import heads_of
from attn_guard.probe.influence import NONE
from attn_guard.probe.on_scores import on_scores
from attn_guard.probe.placement import Placement, placement
from attn_guard.probe.replay import ReplayError
from attn_guard.probe.streams import Stream
from attn_guard.probe.tape import Op
from attn_guard.probe.trial import runs

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay

# The axes of a mask argument: b batch, n batch · heads, q queries, k keys, 1 none. The commonest first.
FORMS: tuple[Axes, ...] = ("bk", "b11k", "bqk", "b1qk", "nqk", "qk", "11qk")
# With as many samples as positions, (batch, keys) may fit by chance: forms with all axes are tried before.
WHOLE_FIRST: tuple[Axes, ...] = ("b11k", "b1qk", *(form for form in FORMS if form not in ("b11k", "b1qk")))
# By its name in torch.nn, this is a mask of (batch, keys) and nothing else.
KEYS_ONLY = "key_padding_mask"
# How an encoder–decoder of transformers names the inputs and masks of its decoder.
OF_DECODER = "decoder_"


@dataclass(frozen=True)
class Delivery:
    """A mask argument as it was handed over.

    ``allowed`` (batch, queries, keys) is True at keys that may be seen, ``keep`` (batch, keys) at real tokens (None
    where the mask is one for all samples). ``stream`` is the input that the mask speaks of, ``main`` that of the
    queries. ``meaning`` is what is promised of the argument, None where nothing is.
    """

    name: str
    meaning: MaskMeaning | None
    axes: Axes
    allowed: Tensor
    stream: Stream
    main: Stream | None
    seen: XRay

    @property
    def keep(self) -> Tensor | None:
        return self.allowed[:, 0] if "b" in self.axes or "n" in self.axes else None

    @property
    def mask(self) -> Tensor:
        return self.seen.tape.values[self.seen.tape.inputs()[self.name]]

    @cached_property
    def arrivals(self) -> tuple[Arrival, ...]:
        """Where the mask meets scores."""
        return tuple(found for anatomy in self.seen.sites for found in self._at(anatomy))

    def _at(self, anatomy: Anatomy) -> list[Arrival]:
        try:
            return list(arrivals(anatomy, self.name, self.axes, self._placed))
        except ReplayError:
            return []

    def _placed(self, anatomy: Anatomy) -> Placement | None:
        return placement(anatomy.influence, len(self.allowed), batch_first=self.seen.call.batch_first)

    @cached_property
    def made(self) -> frozenset[int]:
        """Every value that the mask has a part in."""
        source = self.seen.tape.inputs().get(self.name)
        return frozenset() if source is None else self.seen.tape.descendants([source])

    def has_part_in(self, op: Op) -> bool:
        return not self.made.isdisjoint(op.inputs)

    @cached_property
    def reaches_scores(self) -> bool:
        """Whether the mask has a part in the scores of any site."""
        operands = (set(op.inputs) - {incoming} for anatomy in self.seen.sites for incoming, op in on_scores(anatomy))
        return any(not self.made.isdisjoint(others) for others in operands)

    @property
    def reaches_own_scores(self) -> bool:
        """Whether a site whose scores the mask has a part in has keys of the input that the mask is taken to speak
        of."""
        tape = self.seen.tape
        own = {stream.rows.value for stream in self.seen.streams.all if stream.name == self.stream.name}
        return any(
            not self.made.isdisjoint(set(op.inputs) - {incoming})
            and not own.isdisjoint(tape.ancestors(anatomy.trace.key))
            for anatomy in self.seen.sites
            for incoming, op in on_scores(anatomy)
        )

    @property
    def acts(self) -> bool:
        """Whether the mask is one to judge: what it means is promised, or it has a part in scores."""
        return self.meaning is not None or self.reaches_scores

    @property
    def is_idle(self) -> bool:
        """Whether nothing that is returned depends on the mask."""
        return self.seen.tape.alive.isdisjoint(self.made)

    @property
    def on_rows(self) -> Iterator[Arrival]:
        """Where the mask has a say over queries only, in attention over the input that it speaks of."""
        for arrival in self.arrivals:
            others = (other for other in self.arrivals if other.anatomy is arrival.anatomy)
            of_keys = arrival.anatomy.influence.is_self is not False or self.stream is not self.main
            if of_keys and arrival.by_query and not any(other.by_key for other in others):
                yield arrival

    @property
    def contradictions(self) -> Iterator[Arrival]:
        """Where True does the opposite of what it does at the first place."""
        known = [arrival for arrival in self.arrivals if arrival.hides_marked is not None and arrival.by_key]
        yield from (arrival for arrival in known if arrival.hides_marked is not known[0].hides_marked)

    def joined_by_and(self, anatomy: Anatomy) -> Arrival | None:
        """The arrival at a site at which the mask has a say only over keys that a causal mask hides anyway."""
        own = [arrival for arrival in self.arrivals if arrival.anatomy is anatomy]
        later = anatomy.influence.later if own and self.is_own and "q" not in self.axes else None
        if later is None:
            return None
        follows = torch.stack([arrival.entries != NONE for arrival in own]).any(dim=0)
        if not follows.any() or follows.shape != later.shape or (follows & ~later).any():
            return None
        if anatomy.blocked is not None and (anatomy.blocked.cpu() & ~later).any():
            return None  # earlier keys are hidden some other way
        return next(arrival for arrival in own if (arrival.entries != NONE).any())

    @property
    def is_own(self) -> bool:
        """Whether the mask speaks of the input that the queries come from, and not of a memory."""
        return self.main is not None and self.stream.name in {part.name for part in self.seen.streams.together}

    @property
    def upside_down(self) -> bool:
        """Whether True hides the keys that it should keep, by what is promised of it."""
        return self.hides_marked is not None and self.hides_marked is (self.meaning == "attend")

    @cached_property
    def hides_marked(self) -> bool | None:
        """Whether True hides a key, as the first site shows that does it clearly."""
        return next((a.hides_marked for a in self.arrivals if a.hides_marked is not None), None)

    @property
    def tried_meaning(self) -> str:
        """What the argument means as it is seen to work, in words; "" where that is promised, or is not clear."""
        if self.meaning is not None:
            return ""
        if self.mask.is_floating_point():
            return "added to the scores" if self.reaches_scores else ""
        if self.hides_marked is None:
            return ""
        return "True means ignore" if self.hides_marked else "True means attend"


def deliveries(xray: XRay) -> Iterator[Delivery]:
    """One delivery for each mask argument that a module takes."""
    for name, meaning in xray.handed.arguments.items():
        found = _first(xray, name, meaning)
        if found is not None:
            yield found


def mask_arguments(xray: XRay) -> dict[str, MaskMeaning | None]:
    """The arguments that are masks, and what True means in them where that is promised."""
    known = xray.contract.masks or {}
    names = [name for name in mask_parameters(xray.module) if name in known or _takes_tensors(xray.module, name)]
    return {name: known.get(name) for name in dict.fromkeys([*known, *names])}


def is_looked_at(xray: XRay, name: str) -> bool:
    """Whether a call does anything with an argument: then it fails on a thing with which nothing can be done."""
    return not runs(xray.module, xray.call.with_argument(xray.module, name, object()), xray.seed)


def _takes_tensors(module: nn.Module, name: str) -> bool:
    parameter = inspect.signature(module.forward).parameters[name]
    return parameter.default in (None, parameter.empty) and parameter.annotation not in (bool, int, float, str)


def _first(xray: XRay, name: str, meaning: MaskMeaning | None) -> Delivery | None:
    """The first delivery that runs; of an argument of which nothing is promised, the first that reaches the scores, or
    that shows that nothing comes of the argument."""
    for stream in masked_by(xray, name):
        by_chance = meaning is None and len(set(stream.leading)) < len(stream.leading)
        for axes in forms(xray, name, stream) or (WHOLE_FIRST if by_chance else FORMS):
            found = handed_over(xray, name, meaning, stream, axes)
            if found is not None:
                return found
    return None


def refused(xray: XRay, taken: Collection[str]) -> Iterator[XRay]:
    """For each mask argument that is not ``taken`` in any form: how the call fails with the likeliest one."""
    for name, meaning in xray.handed.arguments.items():
        stream = next(iter(masked_by(xray, name)), None)
        if name in taken or stream is None:
            continue
        axes = next(iter(forms(xray, name, stream)), FORMS[0])
        allowed = _allowed(xray, stream, axes)
        if allowed is not None:
            keep = shaped(allowed, axes, heads(xray))
            mask = as_mask(keep, meaning or "attend", xray.tape.values[stream.rows.value].dtype)
            call = xray.call.with_argument(xray.module, name, mask.contiguous())
            if not runs(xray.module, call, xray.seed):
                yield xray.again(call)


def handed_over(xray: XRay, name: str, meaning: MaskMeaning | None, stream: Stream, axes: Axes) -> Delivery | None:
    allowed = _allowed(xray, stream, axes)
    if allowed is None:
        return None
    keep = shaped(allowed, axes, heads(xray))
    value = xray.tape.values[stream.rows.value]
    weak: Delivery | None = None
    unsure = meaning is None or axes not in (forms(xray, name, stream) or FORMS)[:1]
    for kind in _kinds(meaning, xray, name):
        mask = as_mask(keep, kind, value.dtype)
        for form in (mask, mask.long()) if kind == "attend" else (mask,):
            call = xray.call.with_argument(xray.module, name, form.contiguous())
            if unsure and not runs(xray.module, call, xray.seed):
                continue
            seen = xray.again(call)
            if seen.tape.failure is not None:
                continue
            found = Delivery(name, meaning, axes, allowed, stream, xray.streams.main, seen)
            if meaning is not None:
                return found
            if not found.reaches_scores and found.is_idle:
                return weak or found
            if found.reaches_own_scores:
                if any(anatomy.blocked is not None for anatomy in seen.sites):
                    return found
                weak = weak or found
                break
    return weak


def _kinds(meaning: MaskMeaning | None, xray: XRay, name: str) -> Sequence[MaskMeaning]:
    if meaning is not None:
        return (meaning,)
    given = bound(xray.module, xray.call).get(name)
    if isinstance(given, Tensor) and given.is_floating_point():
        return ("additive", "attend")
    return ("attend", "additive")


def forms(xray: XRay, name: str, stream: Stream) -> list[Axes]:
    """The forms that a mask argument is known to have, by its name or by the call; none where nothing is known."""
    if name.endswith(KEYS_ONLY):
        return ["bk"]
    given = bound(xray.module, xray.call).get(name)
    if not isinstance(given, Tensor):
        return ["qk"] if is_of_torch(xray.module) else []
    fitting = []
    for axes in FORMS:
        allowed = _allowed(xray, stream, axes)
        if allowed is not None and shaped(allowed, axes, heads(xray)).shape == given.shape:
            fitting.append(axes)
    return fitting


def heads(xray: XRay) -> int:
    return xray.sites[0].sizes[Size.HEADS] if xray.sites else heads_of(xray.module)


def _allowed(xray: XRay, stream: Stream, axes: Axes) -> Tensor | None:
    """(batch, queries, keys): a batch padded in the usual ways, or a triangle for masks that all samples share."""
    main = xray.streams.main
    if main is None or len(main.leading) != 2:
        return None
    batch, keys = stream.leading if stream.time_axis == 1 else stream.leading[::-1]
    queries = main.leading[main.time_axis]
    device = xray.tape.values[stream.rows.value].device
    if "b" in axes or "n" in axes:
        return holes(batch, keys).to(device)[:, None].expand(batch, queries, keys)
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries).expand(batch, -1, -1)


def shaped(allowed: Tensor, axes: Axes, heads: int) -> Tensor:
    """What may be seen, (batch, queries, keys), with the axes of a mask argument."""
    if "n" in axes:
        return allowed.repeat_interleave(heads, 0)
    if "q" not in axes:
        allowed = allowed[:, :1]
    if "b" not in axes:
        allowed = allowed[:1]
    return allowed.reshape([allowed.shape["bqk".index(axis)] if axis in "bqk" else 1 for axis in axes])


def masked_by(xray: XRay, name: str) -> list[Stream]:
    """The streams that a mask argument can speak of: those of its own name's stem, or else all that look alike.

    A mask of keys and values that come in apart speaks of the keys, and one that is not named for a decoder never of
    what is.
    """
    streams = [stream for stream in xray.streams.all if len(stream.leading) == 2]
    named = [stream for stream in streams if stream.name.split("_")[0] == name.split("_")[0]]
    others = [stream for stream in streams if not stream.name.startswith(OF_DECODER)]
    apart = [stream for stream in others if stream is not xray.streams.main]
    return named or (apart + others if xray.contract.cross else others)


def holes(batch: int, time: int) -> Tensor:
    """(batch, time) real tokens of a batch that is padded in the usual ways: right, left, and with a hole inside. No
    sample is padding alone."""
    keep = torch.ones(batch, time, dtype=torch.bool)
    pads = min(2, time - 1)
    for row in range(batch):
        if row % 3 == 0:
            keep[row, time - pads :] = False
        elif row % 3 == 1:
            keep[row, :pads] = False
        elif pads:
            keep[row, time // 2] = False
    return keep
