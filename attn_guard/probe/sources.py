"""Which inputs the masks of a site are built from, and which input its keys come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.deliveries import mask_arguments
from attn_guard.probe.on_scores import on_scores
from attn_guard.probe.streams import Stream
from attn_guard.probe.tape import Op

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


@dataclass(frozen=True)
class ForeignMask:
    """A mask over the keys of a site that is built from the input ``built_from``, while the keys come from ``keys``."""

    op: Op
    built_from: str
    keys: str


def foreign_masks(xray: XRay) -> Iterator[ForeignMask]:
    """Masks that know nothing of the input whose keys they hide, but of another one."""
    masks = mask_arguments(xray)
    streams = [stream for stream in xray.streams.all if len(stream.leading) == 2 and stream.name not in masks]
    if len({_stem(stream.name) for stream in streams}) < 2:
        return
    for anatomy in xray.sites:
        keys = _stream_of_keys(xray, streams, anatomy)
        if keys is None:
            continue
        sources = [(op, _sources(xray, operand)) for op, operand in _over_keys(anatomy)]
        if any(_stem(name) == _stem(keys.name) for _, names in sources for name in names):
            continue
        others = {_stem(stream.name) for stream in streams} - {_stem(keys.name)}
        for op, names in sources:
            foreign = [name for name in names if _stem(name) in others]
            if foreign and len(foreign) == len(names):
                yield ForeignMask(op, foreign[0], keys.name)


def _stream_of_keys(xray: XRay, streams: Sequence[Stream], anatomy: Anatomy) -> Stream | None:
    """The input whose positions are the keys of a site; None where several have a part in them."""
    behind = xray.tape.ancestors(anatomy.trace.key)
    found = [stream for stream in streams if stream.rows.value in behind]
    if len({_stem(stream.name) for stream in found}) == 1:
        return found[0]
    main = xray.streams.main
    if main is None or not anatomy.influence.is_self or not any(stream is main for stream in found):
        return None
    as_many = anatomy.influence.keys.shape[-1] == main.leading[main.time_axis]
    return main if as_many else None  # more keys: those of a memory stand beside the own ones


def _over_keys(anatomy: Anatomy) -> Iterator[tuple[Op, int]]:
    """Each operation that brings something other than content to the scores, which differs from key to key."""
    flow = anatomy.trace.flow
    for incoming, op in on_scores(anatomy):
        for operand in op.inputs:
            value = flow.tape.values[operand]
            varies = value.dim() > 0 and value.shape[-1] > 1 and value.stride(-1) != 0
            if operand != incoming and operand not in flow.content and varies:
                yield op, operand


def _sources(xray: XRay, operand: int) -> list[str]:
    behind = xray.tape.ancestors(operand)
    return [name for name, value in xray.tape.inputs().items() if value in behind]


def _stem(name: str) -> str:
    return name.split("_")[0].split(".")[0]
