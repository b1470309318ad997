"""Runs a module with padding and looks at what the padded tokens do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attn_guard.contract import MaskMeaning
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.calling import Call, as_mask
from attn_guard.probe.replay import Replay
from attn_guard.probe.streams import Stream, is_clear

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


@dataclass(frozen=True)
class PaddedRun:
    """What a call with padding showed. ``keep`` (batch, time) is True at real tokens.

    ``pads_matter``: some output at a real token changes with the content of padded ones. ``others_matter``: some output
    at a real token changes with another real token.
    """

    name: str
    meaning: MaskMeaning
    keep: Tensor
    pads_matter: bool
    others_matter: bool
    call: Call
    sites: tuple[Anatomy, ...]


def padded_runs(xray: XRay) -> Iterator[PaddedRun]:
    """One run for each mask argument whose meaning is promised and that takes a mask of (batch, time)."""
    for name, meaning in (xray.contract.masks or {}).items():
        runs = (_run(xray, name, meaning, stream) for stream in _masked_by(xray, name))
        found = next((run for run in runs if run is not None), None)
        if found is not None:
            yield found


def _masked_by(xray: XRay, name: str) -> list[Stream]:
    """The streams that a mask argument can speak of: those of its own name's stem, or else all that look alike.

    A mask of keys and values that come in apart speaks of the keys.
    """
    streams = [stream for stream in xray.streams.all if len(stream.leading) == 2]
    named = [stream for stream in streams if stream.name.split("_")[0] == name.split("_")[0]]
    apart = [stream for stream in streams if stream is not xray.streams.main]
    return named or (apart + streams if xray.contract.cross else streams)


def _run(xray: XRay, name: str, meaning: MaskMeaning, stream: Stream) -> PaddedRun | None:
    batch, time = stream.leading if stream.time_axis == 1 else stream.leading[::-1]
    value = xray.tape.values[stream.rows.value]
    keep = holes(batch, time).to(value.device)
    mask = as_mask(keep, meaning, value.dtype)
    for form in (mask, mask.long()) if meaning == "attend" else (mask,):
        again = xray.again(xray.call.with_argument(xray.module, name, form))
        if again.tape.failure is None:
            return _judged(again, name, meaning, keep, stream, declared=xray.promised(name))
    return None


def _judged(
    again: XRay, name: str, meaning: MaskMeaning, keep: Tensor, stream: Stream, *, declared: bool
) -> PaddedRun | None:
    streams = again.streams
    source = next((s for s in streams.all if s.name == stream.name and s.leading == stream.leading), None)
    main, output = streams.main, streams.output
    if source is not None and output is None and declared:
        return _judged_whole(again, name, meaning, keep, source)
    if source is None or main is None or output is None:
        return None
    is_main = source.rows.value == main.rows.value
    of_memory = name.split("_")[0] == source.name.split("_")[0] == "memory"
    if not (is_main or declared or of_memory) or (is_main and name.startswith("memory")):
        return None
    keep_rows = (keep if stream.time_axis == 1 else keep.t()).flatten().cpu()
    seen = keep_rows if is_main else torch.ones(len(main.positions), dtype=torch.bool)
    depth = len(main.leading)
    if again.tape.values[output].flatten(depth).flatten(0, -2).cpu()[seen].isnan().any():
        return None
    pads, real = (~keep_rows).nonzero().flatten(), keep_rows.nonzero().flatten()[:1]
    by_pads, by_real = streams.touched((source,), (pads, real), output)
    if is_main:
        by_real[real] = False
    return PaddedRun(
        name=name,
        meaning=meaning,
        keep=keep,
        pads_matter=bool((by_pads & seen).any()),
        others_matter=bool((by_real & seen).any()),
        call=again.call,
        sites=again.sites,
    )


def _judged_whole(again: XRay, name: str, meaning: MaskMeaning, keep: Tensor, source: Stream) -> PaddedRun | None:
    """Where outputs have no place for each token (pooling, queries of their own), they are judged as a whole."""
    tape = again.tape
    outputs = [value for value in tape.results() if tape.values[value].is_floating_point()]
    if not outputs or any(tape.values[value].isnan().any() for value in outputs):
        return None
    keep_rows = (keep if source.time_axis == 1 else keep.t()).flatten().cpu()
    replay = Replay(tape, [source.rows.value], outputs)
    generator = torch.Generator().manual_seed(again.seed)

    def matter(rows: Tensor) -> bool:
        changed = replay({source.rows.value: source.rows.changed(rows, generator)})
        return any(bool(is_clear(changed[value], tape.values[value]).any()) for value in outputs)

    return PaddedRun(
        name=name,
        meaning=meaning,
        keep=keep,
        pads_matter=matter((~keep_rows).nonzero().flatten()),
        others_matter=matter(keep_rows.nonzero().flatten()[:1]),
        call=again.call,
        sites=again.sites,
    )


def holes(batch: int, time: int) -> Tensor:
    """(batch, time) real tokens of a batch that is padded in the usual ways: right, left, and with a hole inside."""
    keep = torch.ones(batch, time, dtype=torch.bool)
    for row in range(batch):
        if row % 3 == 0:
            keep[row, -2:] = False
        elif row % 3 == 1:
            keep[row, :2] = False
        else:
            keep[row, time // 2] = False
    return keep
