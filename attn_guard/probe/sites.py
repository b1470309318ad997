"""Finds the attention computations on a tape: each softmax with the two products around it.

What is recovered here is structure: which operation plays which part. What a run with changed inputs shows beyond
that is in `attn_guard.probe.influence`, and both together make a `Site` in `attn_guard.probe.anatomist`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from attn_guard.probe.axes import Axes, Line
from attn_guard.probe.entries import entries_of
from attn_guard.probe.flow import (
    DROPOUT,
    LAYOUT,
    MATMUL,
    PRODUCT,
    SELECTION,
    SOFTMAX,
    SUM,
    Flow,
    Projection,
    operands,
)
from attn_guard.probe.softmax import NO_SOFTMAX, Softmax, softmaxes
from attn_guard.probe.tape import Op

# What a product goes through that is added to the scores as a gate: the logarithm of what is let through.
_GATES = frozenset("sigmoid sigmoid_ log_sigmoid_forward softplus log log_".split())
# What may lie between a softmax and another one over its weights.
_KEEPS_WEIGHTS = LAYOUT | PRODUCT | SUM | SELECTION | DROPOUT


@dataclass(frozen=True)
class Trace:
    """One attention computation on a tape, by its operations and values.

    ``left`` and ``right`` are the operands of the scores product; ``weights`` and ``value`` those of the context
    product, (N, Tq, Tk) and (N, Tk, d), or `turned`. ``softmax`` is one operation however it is written
    (`attn_guard.probe.softmax`), and ``repeated`` are further ones over the weights. ``terms`` counts the products that
    are added up to the scores: more than one with relative positions of their own (DeBERTa).
    """

    flow: Flow
    scores: Op
    written: Softmax
    context: Op
    weights: int
    value: int
    repeated: tuple[Softmax, ...] = ()
    terms: int = 1

    @property
    def softmax(self) -> Op:
        return self.written.op

    @property
    def has_softmax(self) -> bool:
        return self.softmax.name != NO_SOFTMAX

    @property
    def same_softmax_again(self) -> Op | None:
        """A second softmax along the axis of the first."""
        return next((other.op for other in self.repeated if self.axes.are_those_of(other.op)), None)

    @cached_property
    def axes(self) -> Axes:
        """Which axis of the scores the softmax runs along, and which one the product with the value."""
        return Axes.of(self.flow.tape, self.scores, self.softmax, self._contraction)

    @property
    def _contraction(self) -> tuple[int, int]:
        """The weights as an operand of the context product, and their axis that it sums over."""
        return self.weights, -2 if self.turned else -1

    @cached_property
    def flipped(self) -> bool:
        """Whether the scores are key · queryᵀ: the softmax and the product with the value run down their columns."""
        return self.axes.softmax is Line.ROWS and self.axes.context is Line.ROWS

    @property
    def sideways(self) -> bool:
        """Whether the parts that rows and columns of the scores play are not known, or not the same for the softmax and
        for the product with the value."""
        return not self.flipped and (self.axes.softmax, self.axes.context) != (Line.COLUMNS, Line.COLUMNS)

    @cached_property
    def query(self) -> int:
        """The operand that holds the queries: (N, Tq, d), or (N, d, Tq) where `flipped`."""
        return operands(self.scores)[1 if self.flipped else 0]

    @cached_property
    def key(self) -> int:
        """The operand that holds the keys: (N, d, Tk), or (N, Tk, d) where `flipped`."""
        return operands(self.scores)[0 if self.flipped else 1]

    @cached_property
    def query_projection(self) -> Projection | None:
        """The projection that makes the queries; None where this module does not project them."""
        return projection_of(self.flow, self.query)

    @cached_property
    def key_projection(self) -> Projection | None:
        return projection_of(self.flow, self.key)

    @cached_property
    def value_projection(self) -> Projection | None:
        return projection_of(self.flow, self.value)

    @cached_property
    def output(self) -> Projection | None:
        """The projection that the context goes through next."""
        return _output(self.flow, self.context)

    @cached_property
    def module(self) -> str:
        """Path of the innermost module that does the whole of it, projections included."""
        core = common_path(op.module for op in (self.scores, self.softmax, self.context))
        owners = [core]
        for projection in (self.query_projection, self.key_projection, self.value_projection):
            if projection is not None:
                path = projection.op.module
                owners.append(path if f"{path}.".startswith(f"{core}.") else path.rpartition(".")[0])
        return common_path(owners)

    @property
    def turned(self) -> bool:
        """Whether the context is value · weightsᵀ, (N, d, Tk) · (N, Tk, Tq): then its columns are the queries."""
        return operands(self.context)[0] == self.value

    @cached_property
    def before(self) -> list[Op]:
        """The operations from the scores to the softmax."""
        return self.flow.chain(self.scores.output, self.softmax.inputs[0])

    @property
    def raised(self) -> tuple[Op, ...]:
        """The operations between the exponential and the sum of a softmax that is written out."""
        return self.written.raised

    @cached_property
    def after(self) -> list[Op]:
        """The operations from the softmax to the product with the value."""
        return [op for op in self.flow.chain(self.softmax.output, self.weights) if op.index not in self.written.own]

    @cached_property
    def merge(self) -> list[Op]:
        """The operations from the context to the output projection, or to the result where there is none."""
        end = self.merged
        return [] if end is None else self.flow.chain(self.context.output, end)

    @cached_property
    def merged(self) -> int | None:
        """The value that enters the output projection; the result where nothing but layout lies between."""
        if self.output is not None:
            return self.output.activation
        reached = self.flow.tape.descendants([self.context.output])
        for result in self.flow.tape.results():
            if result in reached and all(op.name in LAYOUT for op in self.flow.chain(self.context.output, result)):
                return result
        return None


def traces(flow: Flow) -> list[Trace]:
    """Every attention computation on the tape, in the order of the softmaxes; those without any key are none."""
    known = [softmax for softmax in softmaxes(flow) if flow.tape.values[softmax.op.output].numel()]
    found: list[Trace] = []
    for softmax in known:
        if not any(softmax in trace.repeated for trace in found):
            found.extend(_trace(flow, softmax, known))
    return found


def without_value(flow: Flow) -> list[Op]:
    """The softmaxes over products of content with content whose weights meet no value, and that nothing returned
    depends on; not those beside another one of the same scores, which is the one that counts."""
    known = softmaxes(flow)
    outputs = {softmax.op.output for softmax in known}
    products = {softmax.op.output: products_behind(flow, softmax.op.inputs[0], outputs) for softmax in known}
    used = [product for weights in products if weights in flow.tape.alive for product in products[weights]]
    return [
        softmax.op
        for softmax in known
        if softmax.op.output not in flow.tape.alive
        and products[softmax.op.output]
        and not any(product in used for product in products[softmax.op.output])
        and _context(flow, softmax, known) is None
    ]


def _trace(flow: Flow, softmax: Softmax, known: Sequence[Softmax]) -> Iterator[Trace]:
    products = products_behind(flow, softmax.op.inputs[0], {other.op.output for other in known})
    if not products:
        return
    found = _context(flow, softmax, known)
    if found is None:
        return
    context, weights, value = found
    yield Trace(
        flow=flow,
        scores=_own(flow, _ungated(flow, _between_projections(flow, products) or products, softmax)),
        written=softmax,
        context=context,
        weights=weights,
        value=value,
        repeated=tuple(_repeated(flow, softmax, weights, known)),
        terms=len(products),
    )


def _between_projections(flow: Flow, products: list[Op]) -> list[Op]:
    """The products of which both sides are projected; what is added to them is of query and a table of positions."""
    return [op for op in products if all(projection_of(flow, side) for side in operands(op))]


def _ungated(flow: Flow, products: list[Op], softmax: Softmax) -> list[Op]:
    """The products but for those that make a gate; all where every one does."""
    entering = softmax.op.inputs[0]
    ungated = [op for op in products if _GATES.isdisjoint(way.name for way in flow.chain(op.output, entering))]
    return ungated or products


def _repeated(flow: Flow, softmax: Softmax, weights: int, known: Sequence[Softmax]) -> Iterator[Softmax]:
    """Further softmaxes that the weights go through before they meet the value."""
    behind = flow.tape.between(softmax.op.output, weights)
    return (other for other in known if other is not softmax and {other.op.inputs[0], other.op.output} <= behind)


def products_behind(flow: Flow, scores: int, weights: Collection[int]) -> list[Op]:
    """The nearest products of content with content that the scores come from; several where they are added up.

    The search ends at the ``weights`` of other softmaxes.
    """
    tape = flow.tape
    products: list[Op] = []
    pending, seen = [scores], set()
    while pending:
        value = pending.pop()
        op = tape.maker(value)
        if op is None or value in seen or value not in flow.content or value in weights:
            continue
        seen.add(value)
        projection = flow.projection(op)
        if flow.product(op) or (projection is not None and flow.is_projected(projection.weight)):
            products.append(op)
        elif projection is None:
            pending.extend(op.inputs)
        elif mixes_heads(flow, projection):
            pending.append(projection.activation)
    return [op for op in products if tape.values[op.output].numel() > 0]  # an expert may get no tokens


def mixes_heads(flow: Flow, projection: Projection) -> bool:
    """Whether a learned matrix mixes scores over their heads, and not over queries or keys (talking heads)."""
    tape, activation = flow.tape, projection.activation
    product = _moved_from(flow, activation)
    entries = None if product is None else entries_of(tape, product.output, activation)
    if product is None or entries is None:
        return False
    if projection.op.name == "convolution":
        axis = 1 if tape.values[projection.weight].shape[2:].numel() == 1 else None
    else:
        axis = -1 if operands(projection.op)[0] == activation else -2
    if axis is None or tape.values[projection.op.output].numel() != entries.numel():
        return False
    mixed = entries.movedim(axis, 0).flatten(1)[:, 0]
    *_, rows, columns = torch.unravel_index(mixed, tape.values[product.output].shape)
    return len(set(mixed.tolist())) > 1 and len(set(rows.tolist())) == len(set(columns.tolist())) == 1


def _moved_from(flow: Flow, value: int) -> Op | None:
    """The product of content with content that a value is, with its axes moved and its numbers scaled or masked."""
    op = flow.tape.maker(value)
    while op is not None and flow.product(op) is None:
        before = next((read for read in op.inputs if read in flow.content), None)
        if before is None or op.name not in LAYOUT | PRODUCT | SUM | SELECTION:
            return None
        op = flow.tape.maker(before)
    return op


def _own(flow: Flow, products: Sequence[Op]) -> Op:
    """The first of several products that no other one is made of: scores of an earlier layer may be added
    (RealFormer)."""
    behind = {op.index: flow.tape.descendants([op.output]) for op in products} if len(products) > 1 else {}
    last = [
        op
        for op in products
        if not any(behind and other.output in behind[op.index] for other in products if other is not op)
    ]
    return min(last, key=lambda op: op.index)


def _context(flow: Flow, softmax: Softmax, known: Sequence[Softmax]) -> tuple[Op, int, int] | None:
    """The next product of the weights with content: the operation, the weights and the other operand.

    Weights that are mixed over heads by a learned matrix on the way (talking heads) stay weights, and so do those that
    go straight into another softmax.
    """
    reached = {softmax.op.output}
    others = {other.op.output for other in known if other is not softmax and not _follows(flow, softmax, other)}
    for op in flow.tape.ops[softmax.op.index + 1 :]:
        if reached.isdisjoint(op.inputs):
            continue
        product = flow.product(op)
        if product is None:
            if not others.isdisjoint(op.outputs):
                return None
            reached.update(op.outputs)
            continue
        left, right = product
        if left in reached and right in reached:
            return None
        return (op, left, right) if left in reached else (op, right, left)
    return None


def _follows(flow: Flow, first: Softmax, second: Softmax) -> bool:
    """Whether a softmax runs over the weights of another, with nothing but moves, masks and factors between."""
    source, target = first.op.output, second.op.inputs[0]
    reached = flow.tape.descendants([source])
    pending, seen = [target] if target in reached else [], {source}
    while pending:
        value = pending.pop()
        op = flow.tape.maker(value)
        if value in seen or op is None:
            continue
        if op.name not in _KEEPS_WEIGHTS:
            return False
        seen.add(value)
        pending.extend(read for read in op.inputs if read in reached)
    return target in reached


def projection_of(flow: Flow, value: int) -> Projection | None:
    """The first projection among the nearest ones that a value comes from."""
    found: list[Projection] = []
    kind = flow.content if value in flow.content else flow.learned
    pending, seen = [value], set()
    while pending:
        current = pending.pop()
        op = flow.tape.maker(current)
        if op is None or current in seen or current not in kind:
            continue
        seen.add(current)
        projection = flow.projection(op) or flow.projection_of_learned(op)
        if projection is not None:
            found.append(projection)
            pending.extend(_behind(flow, projection))
        elif flow.product(op) is None:
            pending.extend(op.inputs)
    return min(found, key=lambda projection: projection.op.index, default=None)


def _behind(flow: Flow, projection: Projection) -> list[int]:
    """The projection right behind one of the form matrix · features, which may mix along time (Linformer); mostly
    none."""
    if projection.op.name == "convolution" or operands(projection.op)[0] != projection.weight:
        return []
    value = projection.activation
    while (op := flow.tape.maker(value)) is not None and (op.name in LAYOUT or op.name == "add"):
        value = op.inputs[0]
    return [value] if op is not None and flow.projection(op) else []


def _output(flow: Flow, context: Op) -> Projection | None:
    """The projection that the context goes through next."""
    reached = {context.output}
    for op in flow.tape.ops[context.index + 1 :]:
        if reached.isdisjoint(op.inputs):
            continue
        projection = flow.projection(op)
        if projection is not None and projection.activation in reached:
            return projection
        if op.name in MATMUL or op.name in SOFTMAX:
            return None
        reached.update(op.outputs)
    return None


def common_path(paths: Iterable[str]) -> str:
    """The longest module path that all paths begin with."""
    split = [path.split(".") if path else [] for path in paths]
    shared: list[str] = []
    for names in zip(*split, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared)
