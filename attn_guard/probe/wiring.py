"""Which learned matrix serves which part of an attention computation, and which ones lie idle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import isclose

import torch
from torch import Tensor, nn

from attn_guard.anatomy import Size, Stage
from attn_guard.findings import Location
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.flow import LAYOUT, MATMUL, SOFTMAX, Projection
from attn_guard.probe.influence import by_bit, decoded, halves
from attn_guard.probe.origins import Rows, feature_axis
from attn_guard.probe.replay import Replay
from attn_guard.probe.sites import Trace
from attn_guard.probe.tape import Op, Tape, same

PARTS = (Stage.QUERY, Stage.KEY, Stage.VALUE)


@dataclass(frozen=True)
class Mixup:
    """A part that is made with the projection of another, or with none, while its own lies idle.

    ``wrong`` is the part, ``other`` the one whose projection it takes (None: it takes none) and ``idle`` names the
    projection, or the columns of a fused one, that nothing uses.
    """

    wrong: Stage
    other: Stage | None
    idle: str
    location: Location


@dataclass(frozen=True)
class Wiring:
    """The projections of one attention computation, by the parameters they are."""

    anatomy: Anatomy
    module: nn.Module

    @property
    def tape(self) -> Tape:
        return self.anatomy.trace.flow.tape

    @cached_property
    def projections(self) -> dict[Stage, Projection]:
        trace = self.anatomy.trace
        found = (trace.query_projection, trace.key_projection, trace.value_projection)
        return {part: projection for part, projection in zip(PARTS, found, strict=True) if projection is not None}

    @cached_property
    def names(self) -> dict[Stage, str]:
        """The parameter that projects each part; parts whose matrix is computed from several are left out."""
        found = {part: parameter_of(self.tape, projection.weight) for part, projection in self.projections.items()}
        return {part: name for part, name in found.items() if name}

    def mixups(self) -> Iterator[Mixup]:
        if len(self.names) < len(self.projections) or self.tape.failure is not None:
            return
        for first, second in combinations(self.projections, 2):
            if self.projections[first].op is self.projections[second].op:
                yield from self._of_columns(first, second)
            elif self._matrix(first) == self._matrix(second):
                yield from self._of_siblings(first, second)
        yield from self._unprojected()
        yield from self._chained()

    def _of_siblings(self, first: Stage, second: Stage) -> Iterator[Mixup]:
        """Two parts share a projection, and one of the same form beside it lies idle."""
        shared = self.names[first]
        for idle in self.idle(shared):
            wrong, other = (second, first) if self._order(idle) > self._order(shared) else (first, second)
            yield Mixup(wrong, other, seat(idle), self._parting(wrong, other))
            return

    def _of_columns(self, first: Stage, second: Stage) -> Iterator[Mixup]:
        """Two parts take the same columns of one projection, and as many others lie idle."""
        if not self._proportional(first, second):
            return
        op = self.projections[first].op
        columns = {part: self._columns(part) for part, projection in self.projections.items() if projection.op is op}
        if not columns[first].any() or not torch.equal(columns[first], columns[second]):
            return
        unused = ~torch.stack(list(columns.values())).any(dim=0)
        if not unused.any():
            yield from self._of_siblings(first, second)
        elif int(unused.sum()) >= int(columns[first].sum()) and self._idle_columns(first, unused):
            begin, end = int(unused.long().argmax()), int(unused.nonzero().max())
            after = begin > int(columns[first].long().argmax())
            wrong, other = (second, first) if after else (first, second)
            yield Mixup(
                wrong, other, f"columns {begin} to {end} of {seat(self.names[first])}", self._parting(wrong, other)
            )

    def _unprojected(self) -> Iterator[Mixup]:
        """A part that is the bare input, beside a projection of the others' form that lies idle."""
        trace = self.anatomy.trace
        bare = [part for part in PARTS if part not in self.projections]
        if len(bare) != 1 or len(self.names) != 2 or trace.output is None:
            return
        idle = [name for name in self.idle(next(iter(self.names.values()))) if name not in self.names.values()]
        if len(idle) == 1:
            ops = {Stage.QUERY: trace.scores, Stage.KEY: trace.scores, Stage.VALUE: trace.context}
            yield Mixup(bare[0], None, seat(idle[0]), ops[bare[0]].location)

    def _chained(self) -> Iterator[Mixup]:
        """A part projected from another part, by matrices that stand side by side and have one shape."""
        if len(self.names) < len(PARTS) or len({(holder(name), self._shape(name)) for name in self.names.values()}) > 1:
            return
        for part, other in ((part, other) for part in PARTS for other in PARTS if part is not other):
            if self._is_made_of(self.projections[part].activation, self.projections[other].op):
                yield Mixup(part, other, "", self.projections[part].op.location)
                return

    def _is_made_of(self, activation: int, source: Op) -> bool:
        """Whether an activation was computed from what an operation made, and not by an attention in between: slots
        that attend several times to the same keys and values are made of these."""
        if activation not in self.tape.descendants([source.output]):
            return False
        later = (op.output for op in self.tape.ops[source.index + 1 :] if op.name in SOFTMAX)
        return not any(activation in self.tape.descendants([weights]) for weights in later)

    @property
    def output_goes_nowhere(self) -> bool:
        """Whether nothing that is returned depends on the context, though it goes on with what the context was made
        of.

        Weights that are returned are reason enough to compute them.
        """
        trace, alive = self.anatomy.trace, self.tape.alive
        if not alive or trace.context.output in alive or trace.softmax.output in alive:
            return False
        operands = {trace.query, trace.key, trace.value, *(part.op.output for part in self.projections.values())}
        return not alive.isdisjoint(operands) or self._input_goes_on

    def ends_a_stream(self, others: Iterable[Wiring]) -> bool:
        """Whether this is the attention of the last layer over a second stream, which only the layers before it are
        for: there the same line's result is used, and here that of another attention of the same module."""
        own, alive = self.anatomy.trace, self.tape.alive
        used = [trace for other in others if (trace := other.anatomy.trace).context.output in alive]
        before = (trace for trace in used if trace.context.index < own.context.index)
        return any(trace.context.place == own.context.place for trace in before) and any(
            trace.module == own.module for trace in used
        )

    @property
    def _input_goes_on(self) -> bool:
        """Whether the stream that the query is projected from, or the norm of, is read again after the context, to
        something returned."""
        trace, alive = self.anatomy.trace, self.tape.alive
        projection = self.projections.get(Stage.QUERY)
        read = projection.activation if projection is not None else trace.query
        stream = max(
            (value for value in self.tape.ancestors(read) & alive if value in trace.flow.content), default=read
        )
        if any(op.name in MATMUL for op in trace.flow.between(stream, read)):
            return False  # a branch of its own, all of which goes nowhere
        return stream in self.tape.results() or any(
            op.index > trace.context.index and not alive.isdisjoint(op.outputs) for op in self.tape.consumers(stream)
        )

    @cached_property
    def idle_output(self) -> str:
        """The projection of the right form that lies idle where the context is returned without any; "" for none."""
        trace = self.anatomy.trace
        if len(self.names) < len(PARTS):
            return ""
        width = self.anatomy.sizes[Size.HEADS] * self.tape.values[trace.value].shape[-2 if trace.turned else -1]
        return idle_output(self.module, trace, set(self.names.values()), width)

    def idle(self, beside: str) -> list[str]:
        """The parameters of the same shape and holder as this one that nothing returned depends on."""
        form = (holder(beside), self._shape(beside))
        return [name for name in self._unused if (holder(name), self._shape(name)) == form]

    @cached_property
    def _unused(self) -> list[str]:
        return unused_parameters(self.module, self.tape)

    def _shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.module.get_parameter(name).shape)

    def _order(self, name: str) -> int:
        return order_of(self.module, name)

    def _matrix(self, part: Stage) -> tuple[str, int, int]:
        """A parameter, and the piece of it that a projection multiplies by."""
        weight = self.tape.values[self.projections[part].weight]
        return self.names[part], int(weight.storage_offset()), weight.numel()

    @property
    def _operands(self) -> dict[Stage, int]:
        trace = self.anatomy.trace
        return {Stage.QUERY: trace.query, Stage.KEY: trace.key, Stage.VALUE: trace.value}

    def _proportional(self, first: Stage, second: Stage) -> bool:
        """Whether the operands of two parts are the same numbers, but for a factor and their order: then they may be
        made of the same columns, and otherwise not."""
        left, right = (
            self.tape.values[self._operands[part]].detach().flatten().abs().float() for part in (first, second)
        )
        if left.numel() != right.numel() or not left.any() or not right.any():
            return False
        left, right = (part / part.max() for part in (left, right))
        alike = isclose(float(left.sum()), float(right.sum()), rel_tol=2e-3)  # spares most pairs the sorting
        return alike and torch.allclose(left.sort().values, right.sort().values, rtol=1e-3, atol=1e-6)

    def _columns(self, part: Stage) -> Tensor:
        """[column] of the projection's result: whether the part depends on it, and on no other at the same place."""
        columns, operand = self._by_column(part), self._operands[part]
        replay = Replay(self.tape, [columns.value], [operand])
        generator = torch.Generator().manual_seed(self.anatomy.seed)
        bits = [
            ~same(replay({columns.value: columns.changed(group, generator)})[operand], self.tape.values[operand])
            for group in halves(len(columns))
        ]
        found = decoded(by_bit(bits).cpu())
        return torch.isin(torch.arange(len(columns)), found)

    def _idle_columns(self, part: Stage, chosen: Tensor) -> bool:
        """Whether nothing that is returned changes with these columns of the projection's result."""
        columns, results = self._by_column(part), self.tape.results()
        changed = columns.changed(chosen.nonzero().flatten(), torch.Generator().manual_seed(self.anatomy.seed))
        again = Replay(self.tape, [columns.value], results)({columns.value: changed})
        return all(bool(same(again[result], self.tape.values[result]).all()) for result in results)

    def _by_column(self, part: Stage) -> Rows:
        """The result of a part's projection, with one row of `Rows` for each of its columns."""
        projection = self.projections[part]
        result = projection.op.output
        elements = torch.arange(self.tape.values[result].numel()).view(self.tape.values[result].shape)
        return Rows(self.tape, result, elements.movedim(feature_axis(projection), 0).flatten(1))

    def _parting(self, wrong: Stage, other: Stage) -> Location:
        """Where the wrong part is made: its own projection, or the first operation after what the two share."""
        trace, projection = self.anatomy.trace, self.projections[wrong]
        shared = self.tape.ancestors(self._operands[other])
        if projection.op.output not in shared:
            return projection.op.location
        way = trace.flow.chain(projection.op.output, self._operands[wrong])
        own = next((op for op in way if shared.isdisjoint(op.outputs)), None)
        return (own or (trace.context if wrong is Stage.VALUE else trace.scores)).location


def parameter_of(tape: Tape, value: int) -> str:
    """The parameter that a value is, or a rearranged piece of; "" for any other value."""
    while (op := tape.maker(value)) is not None and op.name in LAYOUT:
        value = op.inputs[0]
    name = tape.leaves.get(value, "")
    return name.removeprefix("parameter ") if name.startswith("parameter ") else ""


def used_parameters(tape: Tape) -> list[str]:
    """The parameters that something returned depends on."""
    return [
        name.removeprefix("parameter ")
        for value, name in tape.leaves.items()
        if name.startswith("parameter ") and value in tape.alive
    ]


def unused_parameters(module: nn.Module, tape: Tape) -> list[str]:
    """The parameters that nothing returned depends on."""
    used = {id(module.get_parameter(name)) for name in used_parameters(tape)}
    return [name for name, parameter in module.named_parameters() if id(parameter) not in used]


def order_of(module: nn.Module, name: str) -> int:
    """The place of a parameter in the order in which the module registers them."""
    return [known for known, _ in module.named_parameters(remove_duplicate=False)].index(name)


def idle_output(module: nn.Module, trace: Trace, names: set[str], width: int) -> str:
    """The idle projection of ``width`` merged features, made after those of the given ``names`` and beside them, where
    the context of a trace goes on without any; "" for none."""
    tape = trace.flow.tape
    if trace.context.output not in tape.alive or not names:
        return ""
    beside, last = {holder(name) for name in names}, max(order_of(module, name) for name in names)
    if trace.output is not None and holder(parameter_of(tape, trace.output.weight)) in beside:
        return ""
    idle = [
        name
        for name in unused_parameters(module, tape)
        if holder(name) in beside
        and order_of(module, name) > last
        and tuple(module.get_parameter(name).shape)[1:2] == (width,)
    ]
    return seat(idle[0]) if len(idle) == 1 else ""


def seat(name: str) -> str:
    """The layer that a parameter belongs to: "attn.q" for "attn.q.weight"."""
    return name.removesuffix(".weight")


def holder(name: str) -> str:
    """The module that holds the layer of a parameter: "attn" for "attn.q.weight" and for "attn.w_q"."""
    return seat(name).rpartition(".")[0]
