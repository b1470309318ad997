"""What the masks show that are handed over to a module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from attn_guard.probe.coincidence import coincident, evened
from attn_guard.probe.deliveries import Delivery, deliveries
from attn_guard.probe.on_scores import added_flags
from attn_guard.probe.sources import ForeignMask, foreign_masks
from attn_guard.probe.tape import Op

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


@dataclass(frozen=True)
class Handed:
    """The mask arguments of a module, handed over in several ways."""

    xray: XRay

    @cached_property
    def over(self) -> tuple[Delivery, ...]:
        """The mask arguments, each handed over in a form that the module takes."""
        return tuple(deliveries(self.xray))

    @cached_property
    def by_chance(self) -> tuple[Delivery, ...]:
        """Deliveries that only run where two sizes of the call are equal."""
        return tuple(coincident(self.xray))

    @property
    def promised(self) -> Iterator[Delivery]:
        """The deliveries in which what True means is promised."""
        return (delivery for delivery in self.over if delivery.meaning is not None)

    @property
    def foreign(self) -> Iterator[ForeignMask]:
        """Masks that are built from another input than the keys they hide; where the call failed with sequences of
        different lengths, it is tried with equal ones."""
        even = evened(self.xray) if self.xray.tape.failure is not None else None
        for seen in (self.xray, even, *(delivery.seen for delivery in self.over)):
            if seen is not None:
                yield from foreign_masks(seen)

    @property
    def added_flags(self) -> Iterator[tuple[Op, bool]]:
        """Operations that add flags to the scores, and whether the flags are a mask whose meaning is promised."""
        masks = [delivery.seen for delivery in self.promised if delivery.meaning != "additive"]
        for seen in (self.xray, *masks):
            for anatomy in seen.sites:
                yield from ((op, seen is not self.xray) for op in added_flags(anatomy))
