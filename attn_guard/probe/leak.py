"""How the future gets into a module that promises to be causal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from attn_guard.findings import Location
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.order import Map, drawn
from attn_guard.probe.tape import Op

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


@dataclass(frozen=True)
class Leak:
    """Outputs that change with later inputs.

    ``influence[output, input]`` is the influence of positions on positions. ``anatomy`` is the first attention that
    looks ahead; where none does, ``entry`` is the operation at which the future enters. ``outside`` says that it is
    none of an attention, and that every attention looks back only.
    """

    influence: Tensor
    anatomy: Anatomy | None
    entry: Op | None
    outside: bool

    @property
    def place(self) -> Location:
        if self.anatomy is not None:
            return self.anatomy.trace.softmax.location
        return self.entry.location if self.entry is not None else Location("<probe>", 0)

    @property
    def first(self) -> tuple[int, int]:
        """The first (output, input) where the input comes later."""
        output, changed = self.influence.triu(1).nonzero()[0].tolist()
        return output, changed

    @property
    def extent(self) -> str:
        size = len(self.influence)
        return f"influence in {int(self.influence.triu(1).sum())} of {size * (size - 1) // 2} cells"

    @property
    def map(self) -> Map:
        return drawn(self.influence, self.influence.triu(1))


def leak_of(xray: XRay) -> Leak | None:
    influence = xray.streams.influence if xray.contract.causal else None
    if influence is None or not influence.triu(1).any():
        return None
    looking_ahead = next((site for site in xray.sites if site.site.causal is False), None)
    if looking_ahead is not None:
        return Leak(influence, looking_ahead, None, outside=False)
    entry = xray.streams.first_leak()
    orderly = any(site.site.causal for site in xray.sites)
    return Leak(influence, None, entry, outside=orderly and not _inside(entry, xray.sites))


def _inside(entry: Op | None, sites: tuple[Anatomy, ...]) -> bool:
    """Whether an operation is part of an attention, between its scores and its context."""
    return entry is not None and any(
        site.trace.scores.index <= entry.index <= site.trace.context.index for site in sites
    )
