"""Runs a module with padding and looks at what the padded tokens do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attn_guard.contract import MaskMeaning
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.calling import Call
from attn_guard.probe.deliveries import Delivery
from attn_guard.probe.replay import Replay
from attn_guard.probe.streams import Stream, is_clear

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


@dataclass(frozen=True)
class PaddedRun:
    """What a call with padding showed. ``keep`` (batch, time) is True at real tokens.

    ``pads_matter``: some output at a real token changes with the content of padded ones. ``others_matter``: some output
    at a real token changes with another real token; asked only where pads matter.
    """

    delivery: Delivery
    meaning: MaskMeaning
    keep: Tensor
    pads_matter: bool
    others_matter: bool

    @property
    def name(self) -> str:
        return self.delivery.name

    @property
    def is_lost(self) -> bool:
        """Whether pads have influence and the mask never meets the scores."""
        return self.pads_matter and not self.delivery.reaches_scores

    @property
    def upside_down(self) -> bool:
        """Whether only padded tokens have influence, or the mask is seen to hide the others."""
        return self.pads_matter and (not self.others_matter or self.delivery.upside_down)

    @property
    def call(self) -> Call:
        return self.delivery.seen.call

    @property
    def sites(self) -> tuple[Anatomy, ...]:
        return self.delivery.seen.sites


def padded_runs(xray: XRay) -> Iterator[PaddedRun]:
    """One run for each mask argument whose meaning is promised and that takes a mask of each sample's own."""
    for delivery in xray.handed.promised:
        if delivery.meaning is not None and delivery.keep is not None:
            found = _judged(delivery, delivery.meaning, delivery.keep, declared=xray.promised(delivery.name))
            if found is not None:
                yield found


def _judged(delivery: Delivery, meaning: MaskMeaning, keep: Tensor, *, declared: bool) -> PaddedRun | None:
    again, stream, name = delivery.seen, delivery.stream, delivery.name
    streams = again.streams
    source = next((s for s in streams.all if s.name == stream.name and s.leading == stream.leading), None)
    main, output = streams.main, streams.output
    if source is not None and output is None and declared:
        return _judged_whole(delivery, meaning, keep, streams.alike(source))
    if source is None or main is None or output is None:
        return None
    is_main = source.rows.value == main.rows.value
    of_memory = name.split("_")[0] == source.name.split("_")[0] == "memory"
    if not (is_main or declared or of_memory) or (is_main and name.startswith("memory")):
        return None
    keep_rows = (keep if stream.time_axis == 1 else keep.t()).flatten().cpu()
    seen = keep_rows.clone() if is_main else torch.ones(len(main.positions), dtype=torch.bool)
    depth = len(main.leading)
    if again.tape.values[output].flatten(depth).flatten(0, -2).cpu()[seen].isnan().any():
        return None
    pads, real = (~keep_rows).nonzero().flatten(), keep_rows.nonzero().flatten()[:1]
    touched = streams.touched(streams.alike(source), (pads, real), output)
    pads_matter = bool((next(touched) & seen).any())
    if is_main:
        seen[real] = False
    others_matter = pads_matter and bool((next(touched) & seen).any())
    return PaddedRun(delivery, meaning, keep, pads_matter, others_matter)


def _judged_whole(
    delivery: Delivery, meaning: MaskMeaning, keep: Tensor, sources: tuple[Stream, ...]
) -> PaddedRun | None:
    """Where outputs have no place for each token (pooling, queries of their own), they are judged as a whole."""
    tape = delivery.seen.tape
    outputs = [value for value in tape.results() if tape.values[value].is_floating_point()]
    if not outputs or any(tape.values[value].isnan().any() for value in outputs):
        return None
    keep_rows = (keep if sources[0].time_axis == 1 else keep.t()).flatten().cpu()
    replay = Replay(tape, [source.rows.value for source in sources], outputs)
    generator = torch.Generator().manual_seed(delivery.seen.seed)

    def matter(rows: Tensor) -> bool:
        changed = replay({source.rows.value: source.rows.changed(rows, generator) for source in sources})
        return any(bool(is_clear(changed[value], tape.values[value]).any()) for value in outputs)

    pads_matter = matter((~keep_rows).nonzero().flatten())
    others_matter = pads_matter and matter(keep_rows.nonzero().flatten()[:1])
    return PaddedRun(delivery, meaning, keep, pads_matter, others_matter)
