"""Runs a module with several documents in one row and looks at what they do to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attn_guard.findings import Location
from attn_guard.probe.calling import arguments
from attn_guard.probe.order import Map, drawn
from attn_guard.probe.streams import Stream

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


@dataclass(frozen=True)
class PackedRun:
    """A call with documents packed into rows. ``documents`` is the id at each row of the main stream; ``leaks`` says
    whether some output changes with another document."""

    again: XRay
    documents: Tensor
    leaks: bool

    @property
    def place(self) -> Location:
        """The first attention that sees another document, or the operation at which it enters."""
        streams = self.again.streams
        for order in self.again.orders:
            meetings = order.meetings(streams, self.documents)
            if meetings is not None and meetings.any():
                return order.place
        entry = streams.first_touched((self.documents == 1).nonzero().flatten(), self.documents != 1)
        return entry.location if entry is not None else Location("<probe>", 0)

    @property
    def map(self) -> Map:
        """The influence of positions on positions in the first sample."""
        streams, main = self.again.streams, self.again.streams.main
        assert main is not None
        assert streams.output is not None
        samples = streams.samples
        first = (samples == 0).nonzero().flatten() if samples is not None else torch.arange(len(main.positions))
        one_by_one = list(first[:, None])
        columns = [touched[first] for touched in streams.touched(streams.together, one_by_one, streams.output)]
        own = self.documents[first]
        return drawn(torch.stack(columns, dim=1), own[:, None] != own[None, :])


def packed_run(xray: XRay) -> PackedRun | None:
    """The call with documents in the declared argument; None where nothing is declared, or no form of ids fits."""
    name, main = xray.contract.segments, xray.streams.main
    if name is None or main is None or xray.streams.output is None:
        return None
    for ids in _forms(arguments(xray.module, xray.call).get(name), main):
        again = xray.again(xray.call.with_argument(xray.module, name, ids.to(xray.tape.values[main.rows.value].device)))
        streams = again.streams
        if again.tape.failure is None and streams.output is not None and streams.main is not None:
            documents = _by_row(ids, main)
            groups = [(documents == number).nonzero().flatten() for number in (1, 2)]
            touched = streams.touched(streams.together, groups, streams.output)
            leaks = any(
                bool((rows & (documents != documents[group[0]])).any())
                for group, rows in zip(groups, touched, strict=True)
            )
            return PackedRun(again, documents, leaks)
    return None


def _forms(given: Any, main: Stream) -> list[Tensor]:
    """Document ids as (batch, time), as they lie in the stream, or as one row for all; like those that were given."""
    time = main.leading[main.time_axis]
    batch = 1 if len(main.leading) == 1 else main.leading[1 - main.time_axis]
    rows = torch.arange(time).expand(batch, time)
    border = (time // 2 + torch.arange(batch) % 2)[:, None]
    ids = 1 + (rows >= border).long()
    forms = [ids, ids.t(), ids[0]] if len(main.leading) > 1 else [ids[0]]
    if isinstance(given, Tensor):
        forms = [form.to(given.dtype) for form in forms if form.shape == given.shape]
    return forms


def _by_row(ids: Tensor, main: Stream) -> Tensor:
    if len(main.leading) == 1:
        return ids.flatten()
    by_sample = ids.expand(main.leading[1 - main.time_axis], -1) if ids.dim() == 1 else ids
    if by_sample.shape != main.leading:
        by_sample = by_sample.t()
    return by_sample.flatten()
