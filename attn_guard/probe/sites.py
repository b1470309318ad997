"""Finds the attention computations on a tape: each softmax with the two products around it.

What is recovered here is structure: which operation plays which part. What a run with changed inputs shows beyond
that is in `attn_guard.probe.influence`, and both together make a `Site` in `attn_guard.probe.anatomist`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from attn_guard.probe.flow import LAYOUT, MATMUL, SOFTMAX, Flow, Projection, operands
from attn_guard.probe.replay import Replay
from attn_guard.probe.tape import Op, same


@dataclass(frozen=True)
class Trace:
    """One attention computation on a tape, by its operations and values.

    ``query`` and ``key`` are the operands of the scores product, (N, Tq, d) and (N, d, Tk); ``weights`` and ``value``
    those of the context product, (N, Tq, Tk) and (N, Tk, d), or `turned`. A projection is None where query, key or
    value are not projected by this module. ``terms`` counts the products that are added up to the scores: more than one
    with relative positions of their own (DeBERTa).
    """

    flow: Flow
    scores: Op
    softmax: Op
    context: Op
    query: int
    key: int
    weights: int
    value: int
    query_projection: Projection | None
    key_projection: Projection | None
    value_projection: Projection | None
    output: Projection | None
    terms: int = 1

    @property
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
    def sideways(self) -> bool:
        """Whether the softmax does not run along the columns of the scores: key · queryᵀ, or a softmax over queries.

        Then the parts that rows and columns play are not known. Found by changing one column and looking where it
        arrives.
        """
        return any(self._spreads(column) for column in (0, -1))

    def _spreads(self, column: int) -> bool:
        """Whether one column of the scores arrives at more than one place along the axis of the softmax."""
        values = self.flow.tape.values
        scores, softmax_input = self.scores.output, self.softmax.inputs[0]
        changed = values[scores].clone()
        changed[..., column] += 1.0
        arrived = Replay(self.flow.tape, [scores], [softmax_input])({scores: changed})[softmax_input]
        moved = ~same(arrived, values[softmax_input])
        return int(moved.movedim(int(self.softmax.args[1]), 0).flatten(1).any(dim=1).sum()) > 1

    @cached_property
    def before(self) -> list[Op]:
        """The operations from the scores to the softmax."""
        return self.flow.chain(self.scores.output, self.softmax.inputs[0])

    @cached_property
    def after(self) -> list[Op]:
        """The operations from the softmax to the product with the value."""
        return self.flow.chain(self.softmax.output, self.weights)

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
    """Every attention computation on the tape, in the order of the softmaxes."""
    return [trace for op in flow.tape.ops if op.name in SOFTMAX for trace in _trace(flow, op)]


def _trace(flow: Flow, softmax: Op) -> Iterator[Trace]:
    products = _products(flow, softmax)
    if not products:
        return
    scores = min(products, key=lambda op: op.index)
    found = _context(flow, softmax)
    if found is None:
        return
    context, weights, value = found
    query, key = operands(scores)
    yield Trace(
        flow=flow,
        scores=scores,
        softmax=softmax,
        context=context,
        query=query,
        key=key,
        weights=weights,
        value=value,
        query_projection=_projection(flow, query),
        key_projection=_projection(flow, key),
        value_projection=_projection(flow, value),
        output=_output(flow, context),
        terms=len(products),
    )


def _products(flow: Flow, softmax: Op) -> list[Op]:
    """The nearest products of content with content before the softmax; several where they are added up."""
    tape = flow.tape
    products: list[Op] = []
    pending, seen = [softmax.inputs[0]], set()
    while pending:
        value = pending.pop()
        op = tape.maker(value)
        if op is None or value in seen or value not in flow.content or op.name in SOFTMAX:
            continue
        seen.add(value)
        projection = flow.projection(op)
        if flow.product(op) or (projection is not None and flow.is_projected(projection.weight)):
            products.append(op)
        elif projection is None:
            pending.extend(op.inputs)
    return products


def _context(flow: Flow, softmax: Op) -> tuple[Op, int, int] | None:
    """The next product of the weights with content: the operation, the weights and the other operand.

    Weights that are mixed over heads by a learned matrix on the way (talking heads) stay weights.
    """
    reached = set(softmax.outputs)
    for op in flow.tape.ops[softmax.index + 1 :]:
        if reached.isdisjoint(op.inputs):
            continue
        product = flow.product(op)
        if product is None:
            if op.name in SOFTMAX:
                return None
            reached.update(op.outputs)
            continue
        left, right = product
        if left in reached and right in reached:
            return None
        return (op, left, right) if left in reached else (op, right, left)
    return None


def _projection(flow: Flow, value: int) -> Projection | None:
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
