"""Attention without a softmax: products of query, key and value that never become weights.

Some are designs (linear attention, weights by a sigmoid or a squared ReLU, decay in place of a softmax); some have lost
their softmax.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from attn_guard.anatomy import Size
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.flow import DROPOUT, LAYOUT, PRODUCT, SELECTION, SOFTMAX, SUM, Flow
from attn_guard.probe.masks import BLOCKING, is_norm
from attn_guard.probe.sites import Trace, products_behind
from attn_guard.probe.softmax import NO_SOFTMAX, Softmax, softmaxes
from attn_guard.probe.tape import Op, Ref

# What scores, queries and keys may pass and still be meant for a softmax.
_PLAIN = LAYOUT | PRODUCT | SUM | SELECTION | DROPOUT | {"neg", "view_as_real", "view_as_complex", "_softmax"}


def bare_traces(flow: Flow, known: Sequence[Trace]) -> Iterator[Trace]:
    """Two products of content one after the other, other than those of ``known`` attention computations.

    The trace that is given has a softmax that changes nothing.
    """
    taken = {op.index for trace in known for op in (trace.scores, trace.context)}
    ends = {softmax.op.output for softmax in softmaxes(flow)}
    for op in flow.tape.ops:
        operands = flow.product(op)
        if operands is None or op.index in taken:
            continue
        for weights, value in (operands, operands[::-1]):
            scores = _single(products_behind(flow, weights, ends), taken, op)
            if scores is not None:
                yield _trace(flow, scores, op, weights, value)
                break


def _single(products: Sequence[Op], taken: Collection[int], context: Op) -> Op | None:
    found = [op for op in products if op.index != context.index]
    return found[0] if len(found) == 1 and found[0].index not in taken else None


def _trace(flow: Flow, scores: Op, context: Op, weights: int, value: int) -> Trace:
    maker = flow.tape.maker(weights)
    assert maker is not None
    axis = -1 if flow.product(context) == (weights, value) else -2
    nothing = replace(
        maker, name=NO_SOFTMAX, args=(Ref(weights), axis), kwargs={}, inputs=(weights,), outputs=(weights,), writes=()
    )
    return Trace(flow, scores, Softmax(nothing), context, weights, value)


@dataclass(frozen=True)
class Bare:
    """A computation without a softmax, and what says whether one was meant."""

    anatomy: Anatomy

    @property
    def trace(self) -> Trace:
        return self.anatomy.trace

    @property
    def is_linear(self) -> bool:
        """Linear attention: keys and values meet first, summed over the positions."""
        return self.anatomy.influence.over_channels

    @cached_property
    def unused(self) -> Op | None:
        """A softmax of the scores whose weights do not meet the value."""
        tape = self.trace.flow.tape
        scores = {self.trace.scores.output, *(op.output for op in self.trace.before)}
        used = tape.ancestors(self.trace.weights)
        unused = (op for op in tape.ops if op.name in SOFTMAX and op.inputs[0] in scores and op.output not in used)
        return next(unused, None)

    @property
    def activation(self) -> str:
        """What weighs the scores in place of a softmax, or maps query and key to features; "" for nothing."""
        ways = (*self.trace.before, *self._made_of)
        return next((op.name.rstrip("_") for op in ways if op.name not in _PLAIN), "")

    @property
    def _made_of(self) -> list[Op]:
        flow, influence = self.trace.flow, self.anatomy.influence
        return [
            *flow.between(influence.query_origin.rows.value, self.trace.query),
            *flow.between(influence.key_origin.rows.value, self.trace.key),
        ]

    @property
    def wants_softmax(self) -> str:
        """What says that a softmax was meant; "" where nothing does, or where something takes its place."""
        if self.unused is not None:
            return "the softmax of these scores is not used"
        anatomy = self.anatomy
        if self.is_linear or self.activation or anatomy.normalised or self._is_normalised_after or self._decays:
            return ""
        fills = [mask.fill for mask in anatomy.masks]
        if any(fill is not None and fill <= BLOCKING for fill in fills):
            return "blocked scores are filled for a softmax"
        scaled = anatomy.scale is not None and anatomy.scale.is_right and anatomy.sizes[Size.HEAD_DIM] > 1
        return "the scores are scaled by 1/√head_dim, as for a softmax" if scaled and not fills else ""

    @property
    def _decays(self) -> bool:
        """Whether the scores are multiplied by numbers of their own each, other than a mask."""
        masks = {mask.op.index for mask in self.anatomy.masks}
        values = self.trace.flow.tape.values
        return any(
            op.name in PRODUCT
            and op.index not in masks
            and all(values[read].numel() > 1 for read in op.inputs[1:])
            and len(op.inputs) > 1
            for op in self.trace.before
        )

    @property
    def _is_normalised_after(self) -> bool:
        """Whether the context is divided by something, or passes a norm of its own, before it is projected."""
        content = self.trace.flow.content
        return any(
            is_norm(op) or (op.name in PRODUCT and len(op.inputs) > 1 and op.inputs[1] in content)
            for op in self.trace.merge
        )
