"""What the masks show that are handed over to a module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from attn_guard.contract import MaskMeaning
from attn_guard.probe.coincidence import coincident, evened
from attn_guard.probe.deliveries import Delivery, deliveries, is_looked_at, mask_arguments, refused
from attn_guard.probe.empty_rows import EmptyRows, empty_rows
from attn_guard.probe.joins import join_at, wrong_joins
from attn_guard.probe.mutations import Mutation, mutations
from attn_guard.probe.on_scores import added_flags
from attn_guard.probe.overflow import Overflow, overflows
from attn_guard.probe.sources import ForeignMask, foreign_masks
from attn_guard.probe.tape import Op

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


@dataclass(frozen=True)
class Handed:
    """The mask arguments of a module, handed over in several ways."""

    xray: XRay

    @cached_property
    def arguments(self) -> dict[str, MaskMeaning | None]:
        """The arguments that are masks, but for those that this call does not look at, and what True means in them
        where that is promised."""
        known = mask_arguments(self.xray).items()
        return {name: meaning for name, meaning in known if meaning is not None or is_looked_at(self.xray, name)}

    @cached_property
    def tried(self) -> tuple[Delivery, ...]:
        """The mask arguments, each handed over in a form that the module takes; of some of them nothing comes."""
        return tuple(deliveries(self.xray))

    @cached_property
    def over(self) -> tuple[Delivery, ...]:
        """The mask arguments that are promised a meaning or have a part in scores, as they were handed over."""
        return tuple(delivery for delivery in self.tried if delivery.acts)

    @property
    def assumptions(self) -> Iterator[str]:
        """What the arguments mean as they are seen to work; nothing is handed over just to tell."""
        for delivery in vars(self).get("over", ()):
            if delivery.tried_meaning:
                yield f"{delivery.name}: {delivery.tried_meaning}, as a call with such a mask shows"

    @cached_property
    def by_chance(self) -> tuple[Delivery, ...]:
        """Deliveries that only run where two sizes of the call are equal."""
        return tuple(coincident(self.xray))

    @property
    def refused(self) -> Iterator[XRay]:
        """Calls that failed with a mask argument which the module takes in no form."""
        return refused(self.xray, {delivery.name for delivery in self.tried})

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

    @cached_property
    def empty_rows(self) -> tuple[EmptyRows, ...]:
        """Queries that masks leave without any key, and what becomes of them."""
        return tuple(empty_rows(self.xray))

    @cached_property
    def overflows(self) -> tuple[Overflow, ...]:
        """Masks that leave the range of their dtype."""
        return tuple(overflows(self.xray))

    @cached_property
    def mutations(self) -> tuple[Mutation, ...]:
        """Masks that a call changes."""
        return tuple(mutations(self.xray))

    @property
    def wrongly_joined(self) -> Iterator[tuple[Op, str]]:
        """Operations by which one of two masks loses, and the argument that one of them is, where that is known."""
        for delivery in self.over:
            for anatomy in delivery.seen.sites:
                joined = delivery.joined_by_and(anatomy)
                if joined is not None:
                    yield join_at(anatomy, joined.op), delivery.name
        for seen in (self.xray, *(delivery.seen for delivery in self.over)):
            yield from ((op, "") for op in wrong_joins(seen))

    @property
    def added_flags(self) -> Iterator[tuple[Op, bool]]:
        """Operations that add flags to the scores, and whether the flags are a mask whose meaning is promised."""
        masks = [delivery.seen for delivery in self.promised if delivery.meaning != "additive"]
        for seen in (self.xray, *masks):
            for anatomy in seen.sites:
                yield from ((op, seen is not self.xray) for op in added_flags(anatomy))
