"""What looks like attention and is left alone: no query meets a key, or nothing becomes a weight. Each with its
reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from attn_guard.findings import Location

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


class Reason(StrEnum):
    """Why an attention computation is left alone."""

    LINEAR = "linear-attention"
    NO_SOFTMAX = "no-softmax"
    PREDICTED = "predicted-weights"
    OTHER = "other-weights"


_TEXTS = {
    Reason.LINEAR: "linear attention: keys and values meet before the query, so no scores are formed",
    Reason.NO_SOFTMAX: "attention without a softmax",
    Reason.PREDICTED: "weights are predicted by a position for others, and no key has a part in its own",
    Reason.OTHER: "weights by a softmax that are made by no query and key, and are not known to be over positions",
}


@dataclass(frozen=True)
class Declined:
    """One computation that is left alone: why, and the operation it was recognised by."""

    reason: Reason
    location: Location
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.location}: {_TEXTS[self.reason]}{f' ({self.detail})' if self.detail else ''}"


def declined(xray: XRay) -> Iterator[Declined]:
    """Attention of other kinds on the tape of a run: see `Reason`."""
    for bare in xray.bare:
        if bare.is_linear:
            yield Declined(Reason.LINEAR, bare.trace.context.location)
        elif not bare.wants_softmax:
            yield Declined(Reason.NO_SOFTMAX, bare.trace.context.location, bare.activation)
    for trace in xray.running:
        yield Declined(Reason.LINEAR, trace.context.location, "running sums")
    for weighing in xray.weighings:
        if weighing.compares and not weighing.is_over_positions:
            yield Declined(Reason.PREDICTED if weighing.is_predicted else Reason.OTHER, weighing.softmax.location)
