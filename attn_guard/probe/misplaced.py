"""Where a mask that was handed over ends up, if not on the scores: on the weights, or in a result that nothing
reads."""

from __future__ import annotations

from collections.abc import Iterator

from attn_guard.anatomy import Site, Stage, Step, StepKind
from attn_guard.probe.deliveries import Delivery
from attn_guard.probe.flow import LAYOUT
from attn_guard.probe.tape import Op


def on_weights(delivery: Delivery) -> Iterator[tuple[Site, Step]]:
    """The masks made of it that act after the softmax."""
    for anatomy in delivery.seen.sites:
        places = {mask.op.location for mask in anatomy.late_masks if delivery.has_part_in(mask.op)}
        steps = anatomy.site.find(StepKind.MASK, Stage.WEIGHTS) if places else ()
        yield from ((anatomy.site, step) for step in steps if step.location in places)


def unread(delivery: Delivery) -> Iterator[tuple[Site, Step]]:
    """The masked scores or weights made of it that nothing reads."""
    for anatomy in delivery.seen.sites:
        places = {mask.op.location for _, mask in anatomy.dropped_masks if delivery.has_part_in(mask.op)}
        steps = anatomy.site.dropped(StepKind.MASK) if places else ()
        yield from ((anatomy.site, step) for step in steps if step.location in places)


def unread_join(delivery: Delivery) -> Op | None:
    """The operation that joins the mask with another, where that other one is used and nothing reads the joined one."""
    tape = delivery.seen.tape
    if not tape.alive.isdisjoint(delivery.made):
        return None
    joins = (op for op in tape.ops if op.name not in LAYOUT and delivery.has_part_in(op))
    return next((op for op in joins if not tape.alive.isdisjoint(op.inputs)), None)
