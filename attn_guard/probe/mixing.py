"""Whether the samples of a batch have influence on each other, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attn_guard.findings import Location
from attn_guard.probe.order import Order

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


@dataclass(frozen=True)
class Mixing:
    """An output of sample ``other`` changes with inputs of sample 0. ``order`` is the attention that sees across
    samples, if it is one; else ``entry`` is where the mixing starts."""

    other: int
    order: Order | None
    entry: Location


def mixing_of(xray: XRay) -> Mixing | None:
    """None where samples keep to themselves, or where attention runs over the batch axis and nothing else: then the
    axes may be named the other way round."""
    streams = xray.streams
    samples = streams.samples
    if samples is None or streams.output is None or streams.main is None:
        return None
    (touched,) = streams.touched(streams.together, [(samples == 0).nonzero().flatten()], streams.output)
    others = samples[touched & (samples != 0)]
    if not len(others):
        return None
    for order in xray.orders:
        across = order.meetings(streams, samples)
        if across is None or not across.any():
            continue
        in_time = order.meetings(streams, streams.main.positions)
        if in_time is None or not in_time.any():
            return None
        return Mixing(int(others[0]), order, order.anatomy.trace.scores.location)
    entry = streams.first_touched((samples == 0).nonzero().flatten(), samples != 0)
    return None if entry is None else Mixing(int(others[0]), None, entry.location)
