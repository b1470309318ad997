"""What a module works on, as positions: which input rows are which time step, and which outputs they have influence
on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attn_guard.probe.flow import LAYOUT
from attn_guard.probe.influence import Influence, sample
from attn_guard.probe.order import Map, drawn
from attn_guard.probe.origins import Origin, Rows, rows_of
from attn_guard.probe.replay import Replay, ReplayError
from attn_guard.probe.tape import Op, Tape, same

# Multiples of a dtype's epsilon, or of an output's largest number, below which a difference may be rounding.
SINGLE_ROUNDING = 1e3
DOUBLE_ROUNDING = 1e-10

# How the names of a decoder's own inputs begin.
_DECODER = ("decoder_", "tgt", "trg", "target")

# What may stand between an input and the convolution over it, and keeps its axes.
_BEFORE_CONVOLUTIONS = frozenset("constant_pad_nd native_group_norm _to_copy clone".split())

_TURNS = frozenset("transpose t permute".split())

# Names of inputs that are query, key or value of one self-attention; they move together.
_OWN_PARTS = frozenset("query key value q k v queries keys values query_states key_states value_states".split())


@dataclass(frozen=True)
class Stream:
    """An input as positions: features (batch, time, width) or, for ids, the embeddings they were looked up as.

    ``leading`` are the axes before the features, ``time_axis`` the one of them that is time.
    """

    name: str
    rows: Rows
    leading: tuple[int, ...]
    time_axis: int

    @cached_property
    def positions(self) -> Tensor:
        """The time step of each row."""
        shape = [1] * len(self.leading)
        shape[self.time_axis] = self.leading[self.time_axis]
        return torch.arange(self.leading[self.time_axis]).view(shape).expand(self.leading).flatten()


@dataclass(frozen=True)
class Streams:
    """All inputs of a recorded call that are positions, and the output that lines up with one of them."""

    tape: Tape
    batch_first: bool
    sites: Sequence[Influence]
    cross: bool = False
    seed: int = 0

    @cached_property
    def all(self) -> tuple[Stream, ...]:
        tape = self.tape
        found = [
            self._stream(name, rows_of(tape, value), batch_first=self.batch_first)
            for name, value in tape.inputs().items()
            if _is_tokens(tape.values[value], name) and not self._has_channels_first(value)
        ]
        for op in tape.ops:
            if op.name == "embedding" and (ids := _ids_of(tape, op)):
                found.append(self._stream(ids, rows_of(tape, op.output), batch_first=not _is_turned(tape, op)))
        return tuple(found)

    def _has_channels_first(self, value: int) -> bool:
        """Whether a value is (batch, channels, time), by the first projection that reads it: then its rows are no
        positions."""
        shape = self.tape.values[value].shape
        if len(shape) != 3 or shape[1] == shape[2]:
            return False
        for site in self.sites:
            if site.query_origin.source == value:
                return site.query_origin.width == shape[1]
        reader = next(iter(self.tape.consumers(value)), None)
        while reader is not None and reader.name in _BEFORE_CONVOLUTIONS:
            reader = next(iter(self.tape.consumers(reader.output)), None)
        return reader is not None and reader.name == "convolution"

    def _stream(self, name: str, rows: Rows, *, batch_first: bool) -> Stream:
        leading = tuple(self.tape.values[rows.value].shape[:-1])
        if len(leading) == 3:
            return Stream(name, rows, leading, self._time_axis_of_heads(rows, leading))
        return Stream(name, rows, leading, 0 if len(leading) == 1 or not batch_first else 1)

    def _time_axis_of_heads(self, rows: Rows, leading: tuple[int, ...]) -> int:
        """Of (batch, heads, time) and (batch, time, heads), what the first attention that reads it takes for time."""
        for site in self.sites:
            if site.query_origin.source == rows.value and site.queries.shape[1] > 1:
                step = int(site.queries[0, 1] - site.queries[0, 0])
                return 2 if step == 1 else 1
        return 2

    @cached_property
    def main(self) -> Stream | None:
        """The stream that a returned tensor lines up with, or else the first; of several, one that lines up with more
        than its batch, and one that is named for a decoder."""
        shapes = [tuple(self.tape.values[value].shape) for value in self.tape.results()]
        lined_up = [s for s in self.all if any(shape[: len(s.leading)] == s.leading for shape in shapes)]
        lined_up.sort(key=lambda stream: len(stream.leading) == 1)
        of_decoder = (s for s in lined_up if s.name.startswith(_DECODER))
        return next(of_decoder, next(iter(lined_up), next(iter(self.all), None)))

    @cached_property
    def output(self) -> int | None:
        """The returned tensor whose leading axes are those of the main stream, and not by chance.

        None where batch and time were swapped inside and are of one size: which is which in the result is not known.
        """
        if self.main is None:
            return None
        leading = self.main.leading
        if len(leading) == 2 and leading[0] == leading[1] and self.batch_first and self.main.time_axis == 0:
            return None
        for value in self.tape.results():
            shape = tuple(self.tape.values[value].shape)
            lined_up = shape[: len(leading)] == leading and len(shape) > len(leading)
            if lined_up and value != self.main.rows.value and value in self._following:
                return value
        return None

    @cached_property
    def _following(self) -> set[int]:
        """Every value that the main stream leads to by another way than as the keys and values of an attention: what is
        only looked up has no say over which position is which."""
        tape, traces = self.tape, [site.trace for site in self.sites if not site.trace.sideways]
        looked_up = {(trace.scores.index, trace.key) for trace in traces if trace.key != trace.query}
        looked_up |= {(trace.context.index, trace.value) for trace in traces}
        found = {stream.rows.value for stream in self.together}
        for op in tape.ops:
            if any(value in found and (op.index, value) not in looked_up for value in op.inputs):
                found.update(op.outputs)
        return found

    @cached_property
    def influence(self) -> Tensor | None:
        """[output position, input position]: whether an output changes with an input of that position in any sample.

        None where inputs and outputs do not line up. Of very many positions a sample is changed.
        """
        if self.main is None or self.output is None:
            return None
        positions = self.main.positions
        time = self.main.leading[self.main.time_axis]
        found = torch.zeros(time, time, dtype=torch.bool)
        numbers = sum(value.numel() for value in self.tape.values)
        groups = sample([(positions == position).nonzero().flatten() for position in range(time)], numbers)
        for group, touched in zip(groups, self.touched(self.together, groups, self.output), strict=True):
            found[positions[touched], positions[group[0]]] = True
        return found

    @property
    def map(self) -> Map:
        """The influence as reports draw it; influence of later positions counts as allowed."""
        return () if self.influence is None else drawn(self.influence, torch.zeros_like(self.influence))

    @property
    def together(self) -> tuple[Stream, ...]:
        """The main stream, with what else is made of the same input, and with the other parts of one self-attention
        where query, key and value come in apart."""
        assert self.main is not None
        if self.cross or self.main.name not in _OWN_PARTS:
            return self.alike(self.main)
        return tuple(s for s in self.all if s.name in _OWN_PARTS and s.leading == self.main.leading)

    def alike(self, stream: Stream) -> tuple[Stream, ...]:
        """A stream with those of the same input: ids may be looked up more than once, in several tables."""
        same_input = (s for s in self.all if s.name == stream.name and s.leading == stream.leading)
        return tuple(s for s in same_input if torch.equal(self._given(s), self._given(stream)))

    def _given(self, stream: Stream) -> Tensor:
        """What a stream was made of: ids, or the features themselves."""
        maker = self.tape.maker(stream.rows.value)
        return self.tape.values[stream.rows.value if maker is None else maker.inputs[1]]

    @property
    def samples(self) -> Tensor | None:
        """The sample of a batch that each row of the main stream belongs to; None where there is one sample."""
        if self.main is None or len(self.main.leading) != 2 or self.main.leading[1 - self.main.time_axis] < 2:
            return None
        shape = [1, 1]
        shape[1 - self.main.time_axis] = -1
        number = self.main.leading[1 - self.main.time_axis]
        return torch.arange(number).view(shape).expand(self.main.leading).flatten()

    def rows_at(self, source: Origin, positions: Tensor) -> Tensor | None:
        """Positions of an origin as row numbers of the main stream (negative ones stay); None where they do not line
        up."""
        if self.main is None or tuple(self.tape.values[source.source].shape[:-1]) != self.main.leading:
            return None
        return torch.where(positions >= 0, positions // source.width, positions)

    def touched(self, streams: Sequence[Stream], groups: Sequence[Tensor], output: int) -> Iterator[Tensor]:
        """For each group of input rows: the rows of an output that change with them.

        A difference so small that it may be rounding counts only if it is there in float64 as well.
        """
        rows = [stream.rows for stream in streams]
        replay = Replay(self.tape, [part.value for part in rows], [output])
        base = replay({part.value: self.tape.values[part.value].clone() for part in rows})[output]
        generator = torch.Generator().manual_seed(self.seed)
        rounding = _rounding(base)
        for group in groups:
            changed = {part.value: part.changed(group, generator) for part in rows}
            again = replay(changed)[output]
            differs = ~same(again, base)
            touched = self._by_row(differs)
            doubtful = touched & ~self._by_row(differs & ~_is_near(again, base, rounding))
            if doubtful.any():
                touched &= ~doubtful | self._touched_in_double(changed, output)
            yield touched.cpu()

    def _by_row(self, cells: Tensor) -> Tensor:
        assert self.main is not None
        return cells.flatten(len(self.main.leading)).any(dim=-1).flatten()

    def _touched_in_double(self, changed: dict[int, Tensor], output: int) -> Tensor:
        """The rows of an output that change in float64 by more than its rounding; none where float64 is not
        supported."""
        replay = Replay(self.tape, list(changed), [output], double=True)
        try:
            base = replay({value: self.tape.values[value].double() for value in changed})[output]
            again = replay({value: tensor.double() for value, tensor in changed.items()})[output]
        except ReplayError:
            return self._by_row(torch.zeros_like(self.tape.values[output], dtype=torch.bool))
        return self._by_row((again - base).abs() > DOUBLE_ROUNDING * _spread(base))

    def first_leak(self) -> Op | None:
        """The first operation at which a position changes with a later one."""
        if self.main is None or self.influence is None or not self.influence.triu(1).any():
            return None
        later = int(self.influence.triu(1).any(dim=0).nonzero()[-1])
        positions = self.main.positions
        return self.first_touched((positions == later).nonzero().flatten(), positions < later)

    def first_touched(self, changed: Tensor, rows: Tensor) -> Op | None:
        """The first operation at which some of the ``rows`` (bool) of the main stream differ when others are
        changed."""
        assert self.main is not None
        depth = len(self.main.leading)
        shapes = ((op, tuple(self.tape.values[op.output].shape)) for op in self.tape.ops if op.outputs)
        shaped = [op for op, shape in shapes if shape[:depth] == self.main.leading and len(shape) > depth]
        differ = self.differences(changed, [op.output for op in shaped])
        touched = {value: bool(one.flatten(depth).any(dim=-1).flatten()[rows].any()) for value, one in differ.items()}
        kept = {value for value, is_touched in touched.items() if not is_touched}
        # What has the axes of the stream by chance, such as (3, time, ...) of query, key and value, is followed by
        # something that has kept them.
        clear = (op for op in shaped if touched[op.output] and kept.isdisjoint(self.tape.descendants([op.output])))
        return next(clear, None)

    def differences(self, changed: Tensor, targets: Sequence[int], *, clear: bool = False) -> dict[int, Tensor]:
        """Where each of the targets differs, bit for bit or clearly, when some rows of the main stream are changed."""
        parts = [stream.rows for stream in self.together]
        generator = torch.Generator().manual_seed(self.seed)
        replay = Replay(self.tape, [part.value for part in parts], targets)
        base = replay({part.value: self.tape.values[part.value].clone() for part in parts})
        again = replay({part.value: part.changed(changed, generator) for part in parts})
        differs = is_clear if clear else lambda one, other: ~same(one, other)
        return {target: differs(again[target], base[target]).cpu() for target in targets}


def is_clear(again: Tensor, base: Tensor) -> Tensor:
    """Cells that differ by more than rounding can add up to."""
    return ~same(again, base) & ~_is_near(again, base, _rounding(base))


def _is_near(again: Tensor, base: Tensor, rounding: float) -> Tensor:
    return (again - base).abs().float() <= rounding


def _rounding(base: Tensor) -> float:
    """How much rounding can add up to."""
    return SINGLE_ROUNDING * torch.finfo(base.dtype).eps * _spread(base) if base.is_floating_point() else 0.0


def _spread(value: Tensor) -> float:
    finite = value[value.isfinite()].float() if value.is_floating_point() else value.float()
    return float(finite.abs().max()) if finite.numel() else 1.0


def _is_tokens(value: Tensor, name: str) -> bool:
    dims = (2, 3, 4) if name in _OWN_PARTS else (2, 3)
    return value.is_floating_point() and value.dim() in dims and value.numel() > 0


def _is_turned(tape: Tape, op: Op) -> bool:
    """Whether the ids that an embedding looks up were transposed on the way from the input."""
    turns, index = 0, op.inputs[1]
    while (maker := tape.maker(index)) is not None and maker.name in LAYOUT:
        turns += maker.name in _TURNS and tape.values[index].dim() == 2
        index = maker.inputs[0]
    return turns % 2 == 1


def _ids_of(tape: Tape, op: Op) -> str:
    """The name of the input whose ids an embedding looks up; "" where it looks up something computed, such as
    positions."""
    index = op.inputs[1]
    while (maker := tape.maker(index)) is not None and maker.name in LAYOUT:
        index = maker.inputs[0]
    name = tape.leaves.get(index, "")
    return name.removeprefix("input ") if name.startswith("input ") else ""
