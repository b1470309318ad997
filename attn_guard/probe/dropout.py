"""Where random numbers drop parts of an attention computation: modules, functions and hand-written masks alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_guard.anatomy import Stage
from attn_guard.probe.flow import MATMUL, Flow
from attn_guard.probe.masks import drops
from attn_guard.probe.sites import Trace
from attn_guard.probe.tape import Op


def dropouts(trace: Trace) -> Iterator[tuple[Stage, Op]]:
    """Every dropout between the projections and the end of the output projection, with what it drops from."""
    flow = trace.flow
    for stage, projection, operand in (
        (Stage.QUERY, trace.query_projection, trace.query),
        (Stage.KEY, trace.key_projection, trace.key),
        (Stage.VALUE, trace.value_projection, trace.value),
    ):
        if projection is not None:
            yield from _among(flow, stage, flow.between(projection.op.output, operand))
    yield from _among(flow, Stage.SCORES, trace.before)
    yield from _among(flow, Stage.WEIGHTS, trace.after)
    yield from _among(flow, Stage.CONTEXT, list(_behind(trace)))


def _among(flow: Flow, stage: Stage, ops: Sequence[Op]) -> Iterator[tuple[Stage, Op]]:
    return ((stage, op) for op in ops if drops(flow, op))


def _behind(trace: Trace) -> Iterator[Op]:
    """The operations that the context goes through, up to the next projection after that of the output."""
    own = trace.output.op if trace.output is not None else None
    reached = {trace.context.output}
    for op in trace.flow.tape.ops[trace.context.index + 1 :]:
        if reached.isdisjoint(op.inputs) or (op.name in MATMUL and op is not own):
            continue
        reached.update(op.outputs)
        yield op
