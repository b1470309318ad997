"""Makes two sizes of a call equal, where a mask argument is taken in no form otherwise: some masks only fit by
chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attn_guard.probe.calling import Call
from attn_guard.probe.copies import each_changed
from attn_guard.probe.deliveries import Delivery, forms, handed_over, heads, masked_by
from attn_guard.probe.shorten import cut

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


def coincident(xray: XRay) -> Iterator[Delivery]:
    """Masks that run only where as many samples as positions, or as many as heads, are handed over."""
    taken = {delivery.name for delivery in xray.handed.tried}
    left = {name: meaning for name, meaning in xray.handed.arguments.items() if name not in taken}
    sizes = tuple(_equal_sizes(xray)) if left else ()
    for name, meaning in left.items():
        found = next(
            (
                delivery
                for stream in masked_by(xray, name)
                for axes in forms(xray, name, stream) or ["bk"]
                for equal in sizes
                for same in masked_by(equal, name)
                if same.name == stream.name
                if (delivery := handed_over(equal, name, meaning, same, axes)) is not None and delivery.acts
            ),
            None,
        )
        if found is not None:
            yield found


def evened(xray: XRay) -> XRay | None:
    """The call with all its sequences cut to the length of the shortest; None where they are equal."""
    times = {stream.leading[stream.time_axis] for stream in xray.streams.all if len(stream.leading) == 2}
    if len(times) < 2:
        return None
    return xray.again(_resized(xray.call, lambda tensor: cut(tensor, dict.fromkeys(times, min(times)))))


def _equal_sizes(xray: XRay) -> Iterator[XRay]:
    """The same call with batch = time, and with batch = heads."""
    main = xray.streams.main
    if main is None or len(main.leading) != 2:
        return
    time, batch = main.leading[main.time_axis], main.leading[1 - main.time_axis]
    if time != batch:
        most, least = max(time, batch), min(time, batch)
        yield xray.again(_resized(xray.call, lambda tensor: cut(tensor, {most: least})))
    wanted = heads(xray)
    if wanted not in (1, batch, time):
        yield xray.again(_resized(xray.call, lambda tensor: _repeated(tensor, batch, wanted)))


def _resized(call: Call, change: Callable[[Tensor], Tensor]) -> Call:
    args, kwargs = each_changed((call.args, call.kwargs), change)
    return replace(call, args=args, kwargs=kwargs)


def _repeated(tensor: Tensor, batch: int, wanted: int) -> Tensor:
    """A tensor with its samples repeated, or dropped, up to the number wanted."""
    if batch not in tensor.shape[:2]:
        return tensor.clone()
    axis = tensor.shape.index(batch)
    return tensor.index_select(axis, torch.arange(wanted, device=tensor.device) % batch)
