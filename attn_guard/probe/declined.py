"""What looks like attention and is left alone: no query meets a key, or nothing becomes a weight. Each with its
reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from attn_guard.anatomy import Site, Stage, Step, StepKind
from attn_guard.findings import Location
from attn_guard.probe.anatomist import pairs
from attn_guard.probe.flow import DROPOUT, LAYOUT, PRODUCT, SELECTION, SUM, Flow
from attn_guard.probe.masks import mask
from attn_guard.probe.softmax import Softmax, softmaxes
from attn_guard.probe.tape import Op

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay

_KEEPS_WEIGHTS = LAYOUT | DROPOUT | SELECTION
_KEEPS_SCORES = LAYOUT | PRODUCT | SUM | SELECTION
_SUMS = frozenset({"sum", "mean"})


class Reason(StrEnum):
    """Why an attention computation is left alone."""

    LINEAR = "linear-attention"
    NO_SOFTMAX = "no-softmax"
    ADDITIVE = "additive-attention"
    POOLING = "attention-pooling"


_TEXTS = {
    Reason.LINEAR: "linear attention: keys and values meet before the query, so no scores are formed",
    Reason.NO_SOFTMAX: "attention without a softmax",
    Reason.ADDITIVE: "additive attention: scores come from a sum of query and key, not from their product",
    Reason.POOLING: "attention pooling: each position is scored by itself, by a network or against one learned query",
}


@dataclass(frozen=True)
class Declined:
    """One computation that is left alone: why, and the operation it was recognised by.

    ``site`` holds its masks, softmax and context where it has a softmax: what is to be said about masks holds for it as
    well.
    """

    reason: Reason
    location: Location
    detail: str = ""
    site: Site | None = None

    def __str__(self) -> str:
        return f"{self.location}: {_TEXTS[self.reason]}{f' ({self.detail})' if self.detail else ''}"


def declined(xray: XRay) -> Iterator[Declined]:
    """Attention of other kinds on the tape of a run: see `Reason`."""
    for bare in xray.bare:
        if bare.is_linear:
            yield Declined(Reason.LINEAR, bare.trace.context.location)
        elif not bare.wants_softmax:
            yield Declined(Reason.NO_SOFTMAX, bare.trace.context.location, bare.activation)
    for trace in xray.running:
        yield Declined(Reason.LINEAR, trace.context.location, "running sums")
    flow = xray.sites[0].trace.flow if xray.sites else Flow.of(xray.tape)
    known = {site.trace.softmax.output for site in xray.sites}
    taken = {op.index for bare in xray.bare for op in (bare.trace.scores, bare.trace.context)}
    for softmax in softmaxes(flow):
        op = weighs(flow, softmax)
        if op is not None and op.index not in taken and softmax.op.output not in known:
            yield Declined(_kind(flow, softmax), softmax.op.location, site=_site(flow, softmax, op))


def _site(flow: Flow, softmax: Softmax, context: Op) -> Site:
    """Masks on scores and weights, the softmax, and the operation in which the weights meet the content."""
    scores = [softmax.op.inputs[0]]
    while (op := flow.tape.maker(scores[0])) is not None and op.name in _KEEPS_SCORES:
        before = next((read for read in op.inputs if read in flow.content), None)
        if before is None:
            break
        scores.insert(0, before)
    weights = next(read for read in context.inputs if read in flow.tape.descendants([softmax.op.output]))
    steps = [
        *_masks(flow, Stage.SCORES, scores[0], softmax.op.inputs[0]),
        Step(StepKind.SOFTMAX, Stage.WEIGHTS, softmax.op.location),
        *_masks(flow, Stage.WEIGHTS, softmax.op.output, weights),
        Step(StepKind.CONTEXT, Stage.CONTEXT, context.location),
    ]
    return Site(context.module, tuple(steps))


def _masks(flow: Flow, stage: Stage, source: int, target: int) -> Iterator[Step]:
    for incoming, op in pairs(source, flow.chain(source, target)):
        found = mask(flow, op, incoming)
        if found is not None:
            yield Step(StepKind.MASK, stage, op.location, text=op.name, fill=found.fill)


def weighs(flow: Flow, softmax: Softmax) -> Op | None:
    """The operation in which the weights of a softmax meet the content that they weigh: a matrix product, or a product
    that is summed; None for weights that are something else, such as the gates of a router."""
    reached = {softmax.op.output}
    for op in flow.tape.ops[softmax.op.index + 1 :]:
        if reached.isdisjoint(op.inputs):
            continue
        if flow.product(op) is not None:
            return op
        if op.name in _KEEPS_WEIGHTS or (
            op.name in PRODUCT and not (len(op.inputs) == 2 and flow.content.issuperset(op.inputs))
        ):
            reached.update(op.outputs)
        elif op.name in PRODUCT:
            summed = (after for after in flow.tape.consumers(op.output) if after.name in _SUMS)
            return op if next(summed, None) is not None else None
        else:
            return None
    return None


def _kind(flow: Flow, softmax: Softmax) -> Reason:
    """Additive attention adds two things of content up before its tanh or another bend."""
    behind = flow.tape.ancestors(softmax.op.inputs[0])
    for op in flow.tape.ops:
        if op.name in {"tanh", "tanh_", "relu", "leaky_relu", "gelu"} and op.output in behind:
            maker = flow.tape.maker(op.inputs[0])
            if maker is not None and maker.name in {"add", "add_"} and flow.content.issuperset(maker.inputs):
                return Reason.ADDITIVE
    return Reason.POOLING
