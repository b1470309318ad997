"""Whether decoding with a cache sees keys that the full pass hides: a mask that the cached path has lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.flow import Flow
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.mismatch import Mismatch
from attn_guard.probe.order import Order
from attn_guard.probe.sites import traces
from attn_guard.probe.tape import Tape
from attn_guard.probe.ways_of_decoding import decoders, may_decode

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


@dataclass(frozen=True)
class Opened:
    """An attention that leaves ``cells`` of its scores open with a cache, which the full pass hides; ``when`` says with
    how much in the cache."""

    order: Order
    cells: int
    when: str


def opened(xray: XRay) -> Opened | None:
    """The first attention that has lost a mask in the chunk that decodes otherwise, or else in one with padding."""
    found = xray.decoded
    if found is not None:
        return _opened(xray, found) if found.error is None and found.start else None
    for run in xray.padded[:1] if may_decode(xray) else ():
        try:
            with preserved(xray.module, xray.seed):
                chunk = next(_second_chunk(run.delivery.seen), None)
            return None if chunk is None else _opened(xray, chunk)
        except Exception:  # a mask may be taken in another form with a cache: nothing is known
            continue
    return None


def _second_chunk(padded: XRay) -> Iterator[Mismatch]:
    """The first token after a prompt, to be compared with the full pass."""
    for decoder in decoders(padded):
        prompt = decoder.total // 2
        if prompt:
            yield Mismatch(decoder, prompt, prompt + 1, (prompt, 1), 0.0, 0.0)


def _opened(xray: XRay, chunk: Mismatch) -> Opened | None:
    runs = chunk.alignment
    if runs.full.failure is not None or runs.part.failure is not None:
        return None
    for ours, theirs in zip(_orders(xray, runs.full), _orders(xray, runs.part), strict=False):
        here, there = ours.seen, theirs.seen
        if here is None or there is None:
            continue
        if here.shape[1:] != (runs.total, runs.total) or there.shape != (len(here), runs.end - runs.start, runs.end):
            continue
        cut = (slice(None), slice(runs.start, runs.end), slice(runs.end))
        known = ours.judged[cut] & theirs.judged
        here, there = here[cut] & known, there & known
        if bool((here < there).any() and (here <= there).all()):
            return Opened(theirs, int((there & ~here).sum()), chunk.when)
    return None


def _orders(xray: XRay, tape: Tape) -> list[Order]:
    return [Order(Anatomy(trace, xray.module, xray.contract.scale, xray.seed)) for trace in traces(Flow.of(tape))]
