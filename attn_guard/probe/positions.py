"""What a module knows of the order of its inputs: whether it matters, tables of positions, and padding on the left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attn_guard.probe.alignment import Alignment
from attn_guard.probe.calling import Call, as_mask, bound
from attn_guard.probe.copies import double, doubled
from attn_guard.probe.flow import LAYOUT, SUM
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.influence import Influence
from attn_guard.probe.origins import Rows, rows_of
from attn_guard.probe.record import record
from attn_guard.probe.replay import Replay, ReplayError
from attn_guard.probe.tape import Op, Tape

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay

EXACT = 1e-9  # of the largest number, in float64
CLEAR = 1e-3  # of the largest number, in the module's own dtype
PADS = 2
_LOOKS_UP = frozenset("embedding select index index_select gather".split())


def is_blind(xray: XRay) -> bool:
    """Whether a module gives the same to its inputs in whatever order they come.

    A module without a causal mask: another order of the inputs is the same order of the outputs, or of none where they
    are pooled. With one: the context of the last position does not change with the order of those before it, in any of
    its attentions.
    """
    streams, influence = xray.streams, xray.streams.influence
    main, output = streams.main, streams.output
    if main is None or not xray.sites or len(main.leading) != 2:
        return False
    time = main.leading[main.time_axis]
    if time < 3:
        return False
    parts = [stream.rows for stream in streams.together]
    numbers = torch.arange(len(main.positions)).view(main.leading).movedim(main.time_axis, 0)
    if output is None or influence is None:
        moved = numbers.roll(1, 0).movedim(0, main.time_axis).flatten()
        pooled = [value for value in xray.tape.results() if xray.tape.values[value].is_floating_point()]
        return bool(pooled) and all(_follows(xray.tape, parts, moved, value, None) for value in pooled)
    if influence.triu(1).any():
        moved = numbers.roll(1, 0).movedim(0, main.time_axis).flatten()
        return _follows(xray.tape, parts, moved, output, moved)
    moved = torch.cat((numbers[: time - 1].roll(1, 0), numbers[time - 1 :])).movedim(0, main.time_axis).flatten()
    return all(
        _last_is_kept(xray.tape, site.influence, parts if first else None, moved)
        for first, site in zip([True] + [False] * len(xray.sites), xray.sites, strict=False)
    )


def _last_is_kept(tape: Tape, site: Influence, parts: Sequence[Rows] | None, moved: Tensor) -> bool:
    """Whether the last query's context stays the same when the rows behind a causal attention change places."""
    sources = parts or list(
        {
            part.source: rows_of(tape, part.source) for part in (site.query_origin, site.key_origin, site.value_origin)
        }.values()
    )
    own = site.queries
    if site.is_self is not True or site.trace.turned or site.trace.sideways or (own < 0).any():
        return False
    if any(len(rows) != len(moved) for rows in sources):
        return False
    context = tape.values[site.trace.context.output]
    last = torch.zeros(context.shape[:-1], dtype=torch.bool)
    last[..., -1] = True
    rows = last.flatten().nonzero().flatten()
    return _follows(tape, sources, moved, site.trace.context.output, None, rows)


def _follows(
    tape: Tape, parts: Sequence[Rows], moved: Tensor, target: int, order: Tensor | None, only: Tensor | None = None
) -> bool:
    """Whether the rows of a value move with those of its sources (or stay, where ``order`` is None), in float64."""
    replay = Replay(tape, [part.value for part in parts], [target], double=True)
    try:
        base = replay({part.value: tape.values[part.value].double() for part in parts})[target]
        again = replay({part.value: _reordered(part, moved).double() for part in parts})[target]
    except ReplayError:
        return False
    width = len(moved) if order is not None else base.numel() // base.shape[-1]
    base, again = base.reshape(width, -1), again.reshape(width, -1)
    base = base if order is None else base[order]
    base, again = (base, again) if only is None else (base[only], again[only])
    return bool(((again - base).abs() <= EXACT * base.abs().max()).all())


def _reordered(part: Rows, order: Tensor) -> Tensor:
    value = part.tape.values[part.value]
    flat = value.detach().reshape(-1).clone()
    elements = part.elements.to(flat.device)
    flat[elements] = value.detach().reshape(-1)[elements[order]]
    return flat.view(value.shape)


@dataclass(frozen=True)
class AddedTable:
    """Something that no input has a part in, added to the features: the operation, and along which of the axes before
    the features it varies. ``looked_up`` says that it was read out of a longer table."""

    op: Op
    axes: frozenset[int]
    looked_up: bool


def added_tables(xray: XRay) -> Iterator[AddedTable]:
    """The tables that are added to the main stream before the first attention."""
    main, tape = xray.streams.main, xray.tape
    if main is None or len(main.leading) != 2:
        return
    stream = tape.descendants([main.rows.value])
    given = tape.descendants(tape.inputs().values()) | stream
    end = xray.sites[0].trace.scores.index if xray.sites else len(tape.ops)
    for op in tape.ops[:end]:
        if op.name not in SUM or len(op.inputs) != 2 or stream.isdisjoint(op.outputs):
            continue
        shape = tape.values[op.output].shape
        tables = [value for value in op.inputs if value not in given]
        if len(tables) == 1 and len(shape) == 3 and tuple(shape[:2]) == main.leading:
            table = tape.values[tables[0]].expand(shape)
            axes = frozenset(a for a in (0, 1) if bool((table != table.narrow(a, 0, 1)).any()))
            yield AddedTable(op, axes, _is_looked_up(tape, tables[0], main.leading[main.time_axis]))


def _is_looked_up(tape: Tape, value: int, longest: int) -> bool:
    """Whether a value was picked out of a parameter or buffer that has room for every position."""
    op = tape.maker(value)
    while op is not None and op.name in LAYOUT and op.name not in _LOOKS_UP:
        op = tape.maker(op.inputs[0])
    if op is None or op.name not in _LOOKS_UP:
        return False
    name = tape.leaves.get(op.inputs[0], "")
    return name.startswith(("parameter", "buffer")) and max(tape.values[op.inputs[0]].shape) >= longest


def attends_along_time(xray: XRay) -> bool:
    """Whether the first attention runs along the axis that is taken for time."""
    main = xray.streams.main
    if main is None or not xray.sites:
        return False
    site = xray.sites[0].influence
    source, own = site.query_origin.source, site.queries[0]
    shape = xray.tape.values[source].shape
    if len(shape) != 3 or tuple(shape[:2]) != main.leading or (own < 0).any() or len(own) < 2:
        return False
    coordinates = torch.stack((own // (shape[1] * shape[2]), own // shape[2] % shape[1]))
    varies = (coordinates != coordinates[:, :1]).any(dim=1)
    return bool(varies[main.time_axis]) and not bool(varies[1 - main.time_axis])


@dataclass(frozen=True)
class LeftPadded:
    """The same tokens padded on the left: ``difference`` of their outputs, and the first operation that differs."""

    name: str
    difference: float
    spread: float
    runs: Alignment


def left_padded(xray: XRay) -> LeftPadded | None:
    """What padding on the left changes for the tokens themselves; None for nothing, or where that cannot be tried, or
    where the content of the padding matters, which is another fault."""
    main, values = xray.streams.main, bound(xray.module, xray.call)
    if main is None or main.time_axis != 1 or not isinstance(values.get(main.name), Tensor) or xray.tape.failure:
        return None
    tokens = values[main.name]
    for name, meaning in (xray.contract.masks or {}).items():
        calls = []
        for pads in (None, tokens[:, :PADS], tokens[:, -PADS:].roll(1, 0)):
            padded = tokens if pads is None else torch.cat((pads, tokens), dim=1)
            keep = torch.ones(padded.shape[:2], dtype=torch.bool, device=tokens.device)
            keep[:, : padded.shape[1] - tokens.shape[1]] = False
            mask = as_mask(keep, meaning, tokens.dtype)
            call = xray.call.with_argument(xray.module, main.name, padded)
            calls.append(call.with_argument(xray.module, name, mask.long() if meaning == "attend" else mask))
        found = _compared(xray, name, calls, tokens.shape[1])
        if found is not None and _compared(xray, name, calls, tokens.shape[1], exact=True) is not None:
            return found
    return None


def _compared(xray: XRay, name: str, calls: Sequence[Call], time: int, *, exact: bool = False) -> LeftPadded | None:
    """The first call, without padding, against the second; the third has other padding."""
    module = doubled(xray.module) if exact else xray.module
    tapes, outputs = [], []
    for call in calls:
        if exact:
            call = replace(
                call,
                args=tuple(double(v) if isinstance(v, Tensor) else v for v in call.args),
                kwargs={k: double(v) if isinstance(v, Tensor) else v for k, v in call.kwargs.items()},
            )
        with preserved(module, xray.seed):
            tape = record(module, call.args, call.kwargs, call.names(module))
        output = _output_of(xray, tape)
        if output is None:
            return None
        tapes.append(tape)
        outputs.append(output[:, -time:])
    plain, padded, other = outputs
    spread = float(plain.abs().max())
    difference, by_content = (float((padded - against).abs().max()) for against in (plain, other))
    if not difference > CLEAR * spread or not by_content <= 0.1 * difference:
        return None
    return LeftPadded(name, difference, spread, Alignment(tapes[1], tapes[0], PADS, time + PADS, time + PADS))


def _output_of(xray: XRay, tape: Tape) -> Tensor | None:
    """The returned tensor that is the module's output in the recorded call, by its place among all."""
    if tape.failure is not None or xray.streams.output is None:
        return None
    place = xray.tape.results().index(xray.streams.output)
    results = tape.results()
    return tape.values[results[place]] if place < len(results) and tape.values[results[place]].dim() > 2 else None
