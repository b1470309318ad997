"""Whether the samples of a batch have influence on each other, and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attn_guard.anatomy import Size
from attn_guard.findings import Location
from attn_guard.probe.flow import LAYOUT, MATMUL
from attn_guard.probe.order import Order
from attn_guard.probe.origins import Rows
from attn_guard.probe.replay import Replay
from attn_guard.probe.streams import Stream, is_clear
from attn_guard.probe.tape import Op, Tape, same

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay

# These move numbers, and do not spread one over a new axis.
_MOVES = LAYOUT - {"expand"}


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
    if streams.main is None:
        return _of_pictures(xray)
    if samples is None:
        return None
    if streams.output is None:
        return _of_pooled(xray, streams.main, samples)
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


def _of_pooled(xray: XRay, main: Stream, samples: Tensor) -> Mixing | None:
    """Mixing of outputs that have one row for each sample and none for each position."""
    tape, count = xray.tape, main.leading[1 - main.time_axis]
    heads = [site.sizes[Size.HEADS] for site in xray.sites[:1]]
    contexts = [site.trace.context for site in xray.sites]
    contexts += [one.context for one in xray.weighings if one.is_over_positions]
    if not contexts or count in (main.leading[main.time_axis], *heads):
        return None
    own = [value for value in tape.results() if _has_a_row_for_each(tape.values[value], count)]
    end = max(context.index for context in contexts)
    later = [op for op in tape.ops[end:] if op.outputs and _has_a_row_for_each(tape.values[op.output], count)]
    changed = (samples == 0).nonzero().flatten()
    differ = xray.streams.differences(changed, [*own[:1], *(op.output for op in later)], clear=True) if own else {}
    others = {value: cells[1:].flatten(1).any(dim=1).nonzero().flatten() for value, cells in differ.items()}
    if not own or not len(others[own[0]]):
        return None
    entry = xray.streams.first_touched(changed, samples != 0)
    entry = entry or next((op for op in later if len(others[op.output])), None)
    return None if entry is None else Mixing(int(others[own[0]][0]) + 1, None, entry.location)


def _has_a_row_for_each(value: Tensor, count: int) -> bool:
    """Whether a value is (batch, features): of one number per pair of samples, nothing is said."""
    return value.is_floating_point() and value.dim() > 1 and value.shape[0] == count and count not in value.shape[1:]


def _of_pictures(xray: XRay) -> Mixing | None:
    """Mixing of images, whose first axis is the batch, in a result whose first axis is as well.

    What meets by a product of matrices, as in attention across frames, is left alone, and so is a batch that is cut in
    pieces.
    """
    tape = xray.tape
    pictures = {v: tape.values[v] for v in tape.inputs().values() if tape.values[v].dim() > 3}
    inputs = [
        Rows(tape, value, torch.arange(picture.numel()).view(len(picture), -1))
        for value, picture in pictures.items()
        if picture.is_floating_point() and picture.numel()
    ]
    counts = {len(rows) for rows in inputs}
    if len(counts) != 1 or counts == {1}:
        return None
    (count,) = counts
    result = next((value for value in tape.results() if _has_a_row_for_each(tape.values[value], count)), None)
    if result is None:
        return None
    generator = torch.Generator().manual_seed(xray.seed)
    changed = {rows.value: rows.changed([0], generator) for rows in inputs}
    again = {**Replay(tape, list(changed), tape.ancestors(result))(changed), **changed}
    others = is_clear(again[result], tape.values[result])[1:].flatten(1).any(dim=1)
    entry = _entry(tape, again, result, count) if others.any() else None
    return None if entry is None else Mixing(int(others.nonzero()[0]) + 1, None, entry.location)


def _entry(tape: Tape, again: Mapping[int, Tensor], result: int, count: int) -> Op | None:
    """Where another sample than the first comes to change, on the way back from a result; None where samples meet in a
    product of matrices, or where what moves the numbers was not given samples first."""
    value = result
    while (op := tape.maker(value)) is not None:
        changed = [read for read in op.inputs if not bool(same(again[read], tape.values[read]).all())]
        by_sample = [read for read in changed if tape.values[read].dim() and len(tape.values[read]) % count == 0]
        mixed = (read for read in by_sample if _others_change(tape, again, read, count))
        earlier = next(mixed, None)
        if earlier is None:
            unknown = op.name in MATMUL or (op.name in _MOVES and len(by_sample) < len(changed))
            return None if unknown else op
        value = earlier
    return None


def _others_change(tape: Tape, again: Mapping[int, Tensor], value: int, count: int) -> bool:
    """Whether a value differs in rows of other samples than the first; an axis may be folded into the samples."""
    differs = ~same(again[value], tape.values[value])
    return bool(differs[len(differs) // count :].any())
