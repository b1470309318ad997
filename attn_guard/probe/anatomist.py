"""Makes the `Site` of a trace: its steps, its scale, its sizes, and what the influence of positions shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isclose, prod

import torch
from torch import Tensor, nn

from attn_guard.anatomy import ONE, Axis, Factor, Site, Size, Stage, Step, StepKind
from attn_guard.probe.axes import Line
from attn_guard.probe.biases import Bias, biases
from attn_guard.probe.blame import merge_of, split_of
from attn_guard.probe.cells import Cells
from attn_guard.probe.designs import configured
from attn_guard.probe.flow import Flow, Projection
from attn_guard.probe.influence import Influence
from attn_guard.probe.masks import Mask, drops, is_norm, mask, multiplier
from attn_guard.probe.origins import Origin
from attn_guard.probe.rotary import Rotary
from attn_guard.probe.silenced import silenced_heads
from attn_guard.probe.sites import Trace
from attn_guard.probe.tape import Op
from attn_guard.probe.unread import Unread, unread_columns, unread_heads

SCALE_ATTRIBUTES = (
    "scale",
    "scaling",
    "softmax_scale",
    "sm_scale",
    "attn_scale",
    "scale_factor",
    "norm_factor",
    "inv_norm_factor",
)
_MASKING = frozenset(
    "masked_fill masked_fill_ where index_put_ index_put mul mul_ add add_ masked_scatter masked_scatter_".split()
)
# The powers of a size that people scale by, the right one first.
_POWERS = (
    (Size.HEAD_DIM, -0.5),
    (Size.D_MODEL, -0.5),
    (Size.ALL_HEADS, -0.5),
    (Size.HEAD_DIM, -1.0),
    (Size.KEYS, -0.5),
    (Size.HEADS, -0.5),
    (Size.D_MODEL, -1.0),
    (Size.HEAD_DIM, 0.5),
    (Size.D_MODEL, 0.5),
    (Size.HEAD_DIM, 1.0),
    (Size.KEYS, -1.0),
    (Size.HEAD_DIM, -0.25),
)


@dataclass(frozen=True)
class Anatomy:
    """One attention computation of a run: its trace, what was measured on it, and the `Site` made of both.

    ``known`` is the same computation in another recording.
    """

    trace: Trace
    module: nn.Module
    declared_scale: float | None = None
    seed: int = 0
    known: Anatomy | None = None

    @cached_property
    def influence(self) -> Influence:
        return Influence(self.trace, self.seed, None if self.known is None else self.known.influence)

    @cached_property
    def rotary(self) -> Rotary:
        """How query, key and value are turned by their positions, if they are."""
        return Rotary(self.influence)

    @cached_property
    def biases(self) -> tuple[Bias, ...]:
        """The relative biases that are added to the scores."""
        return tuple(biases(self.influence))

    @property
    def weights(self) -> Tensor:
        """The attention weights, as the softmax gave them: (batch, heads, queries, keys)."""
        weights = self.trace.flow.tape.values[self.trace.softmax.output].detach()
        heads = self.sizes[Size.HEADS]
        cells = self.stacked(self.trace.before, weights)
        weights = weights if cells is None else cells
        return weights.reshape(-1, heads, *weights.shape[-2:]) if weights.dim() > 1 else weights

    @property
    def final_weights(self) -> Tensor | None:
        """The weights as they meet the values, (slices, queries, keys); None where their axes are unclear."""
        trace = self.trace
        weights = trace.flow.tape.values[trace.weights]
        cells = self.stacked(trace.flow.chain(trace.scores.output, trace.weights), weights)
        if cells is not None or trace.sideways:
            return cells
        stack = weights.reshape(-1, *weights.shape[-2:])
        return stack.mT if trace.turned else stack

    def stacked(self, ops: Sequence[Op], value: Tensor) -> Tensor | None:
        """A value of the scores' cells at the end of a chain of operations from them, as (slices, queries, keys)."""
        found = Cells.of(self.trace.flow.tape, self.trace.scores.output, ops)
        cells = None if found is None else found.stack(value)
        return cells.mT if cells is not None and self.trace.flipped else cells

    @cached_property
    def site(self) -> Site:
        influence, sizes = self.influence, self.sizes
        return Site(
            name=self.trace.module,
            steps=tuple(self._steps()),
            scale=self.scale,
            normalised=self.normalised,
            cross=None if influence.is_self is None else not influence.is_self,
            causal=influence.causal,
            softmax_over=self.softmax_over,
            summed_over=self._counted(self.trace.axes.context),
            sizes=sizes,
        )

    @cached_property
    def sizes(self) -> dict[Size, int]:
        values = self.trace.flow.tape.values
        slices, *query = (1, *values[self.trace.query].shape)[-3:]
        projection = self.trace.query_projection
        features = -2 if self.trace.flipped else -1
        found = {Size.HEAD_DIM: query[features], Size.KEYS: values[self.trace.key].shape[features]}
        samples = {tuple(sorted(row)) for row in self.influence.queries.tolist()}
        found[Size.HEADS] = max(1, slices // max(1, len(samples)))
        found[Size.ALL_HEADS] = found[Size.HEADS] * found[Size.HEAD_DIM]
        if projection is not None:
            found[Size.D_MODEL] = self.influence.query_origin.width
        return found

    @cached_property
    def softmax_over(self) -> Axis | None:
        """What the softmax runs along."""
        if self.trace.axes.softmax is not Line.NEITHER:
            return self._counted(self.trace.axes.softmax)
        slices = [tuple(row) for row in self.influence.queries.tolist()]
        return self.trace.axes.counted_across(slices)

    def _counted(self, line: Line | None) -> Axis | None:
        """Whether rows or columns of the scores are keys or queries.

        Where the softmax and the product with the value disagree, keys are what comes from the same tensor as the
        value; where query and key do, too, the columns are taken for keys, as nearly everybody writes it.
        """
        if line is None or line is Line.NEITHER:
            return None
        keys = Line.ROWS if self.trace.flipped or self._keys_come_first else Line.COLUMNS
        return Axis.KEYS if line is keys else Axis.QUERIES

    @property
    def _keys_come_first(self) -> bool:
        left, right, value = (
            origin.source
            for origin in (self.influence.query_origin, self.influence.key_origin, self.influence.value_origin)
        )
        return self.trace.sideways and left == value != right

    @cached_property
    def masks(self) -> list[Mask]:
        """The masks applied to the scores before the softmax, or to their exponentials before these are summed."""
        before = [found for _, found in self._masks_on(self.trace.scores.output, self.trace.before) if found]
        return [*before, *(found for _, found in self._masks_on_raised() if found)]

    def _masks_on_raised(self) -> Iterator[tuple[Op, Mask | None]]:
        """Masks on the exponentials of a softmax that is written out, with the fill that they are for the scores."""
        if self.trace.written.exp is not None:
            for op, found in self._masks_on(self.trace.written.exp.output, self.trace.raised):
                yield op, found and found.of_logarithms

    @cached_property
    def blocked(self) -> Tensor | None:
        """Cells (N, Tq, Tk) that any mask before the softmax blocks; None without a mask, or where axes are unclear."""
        if self.trace.sideways:
            return None
        before = self.trace.before
        ends = {op.index: before[: place + 1] for place, op in enumerate(before)}
        cells = [self.stacked(ends.get(found.op.index, before), found.blocked) for found in self.masks]
        known = [one for one in cells if one is not None]
        return torch.stack(known).any(dim=0) if known else None

    @cached_property
    def leaking(self) -> tuple[Step, float] | None:
        """(mask, weight) where keys that a mask blocks change the context: the step of the weakest mask and the largest
        such weight."""
        weights = self.stacked(self.trace.before, self.trace.flow.tape.values[self.trace.softmax.output])
        if self.blocked is None or weights is None:
            return None
        blocked, weights = self.blocked.cpu(), weights.cpu()
        cells = blocked & ~blocked.all(dim=-1, keepdim=True) & ~torch.eye(*blocked.shape[-2:], dtype=torch.bool)
        cells &= weights != 0
        influence = self.influence.slices if cells.any() else None
        if influence is None or influence.shape != cells.shape or not (cells := cells & influence).any():
            return None
        place = max(self.masks, key=lambda mask: -inf if mask.fill is None else mask.fill).op.location
        steps = self.site.before_softmax(StepKind.MASK)
        step = next((step for step in steps if step.location == place), next(iter(steps), None))
        return None if step is None else (step, float(weights[cells].max()))

    @cached_property
    def unread_columns(self) -> tuple[Unread, ...]:
        """Columns of the projections that are computed and never read."""
        return tuple(unread_columns(self.trace))

    @cached_property
    def unread_heads(self) -> Unread | None:
        """Heads whose context is computed and never read, or set to zero."""
        return unread_heads(self.trace, self.influence) or silenced_heads(self.trace, self.influence)

    @property
    def hides_past(self) -> bool:
        """Whether the masks block every earlier key, or every key but later ones, of each query."""
        if self.blocked is None or self.influence.is_self is not True:
            return False
        if self.blocked.shape[-1] < 3 or self.blocked.shape[-1] != self.blocked.shape[-2]:
            return False
        past = torch.ones(self.blocked.shape[-2:], dtype=torch.bool, device=self.blocked.device)
        return any(bool((self.blocked == past.tril(diagonal)).all()) for diagonal in (0, -1))

    @property
    def keeps_only_later(self) -> bool:
        """Whether the masks block some earlier keys and the own key of every query, and none that comes later."""
        blocked, distance = self.blocked, self.influence.distance
        if blocked is None or distance is None or blocked.shape != distance.shape or not (distance > 0).any():
            return False
        hidden = blocked.cpu()
        return bool(hidden[distance == 0].all() and hidden[distance < 0].any() and not hidden[distance > 0].any())

    @cached_property
    def scale(self) -> Factor | None:
        factors = [number for _, number in self._multipliers()]
        if self.influence.over_channels or any(number is None for number in factors):
            return None
        total = prod(number for number in factors if number is not None)
        if total == 1.0 and None in (self.trace.query_projection, self.trace.key_projection):
            return None  # what comes in ready-made may have been scaled before
        if self.trace.terms > 1 and not isclose(total, self.sizes[Size.HEAD_DIM] ** -0.5, rel_tol=2e-3):
            return None  # a sum of several products has a variance of its own
        if self.declared_scale is not None and isclose(total, self.declared_scale, rel_tol=2e-3):
            return Factor(value=total, size=Size.HEAD_DIM, power=-0.5, text="declared scale")
        return self._named(total)

    def _named(self, value: float) -> Factor:
        if isclose(value, 1.0, rel_tol=1e-6):
            return ONE
        stated, right = self._stated(value), self.sizes[Size.HEAD_DIM] ** -0.5
        if stated.startswith("config.") and not isclose(value, right, rel_tol=2e-3):
            return Factor(value=value, text=stated)
        for size, power in _POWERS:
            if size is Size.KEYS and stated:
                continue  # a number that the module holds cannot follow the number of keys
            if size in self.sizes and isclose(value, self.sizes[size] ** power, rel_tol=2e-3):
                return Factor(value=value, size=size, power=power, text=stated)
        return Factor(value=value, text=stated)

    def _stated(self, value: float) -> str:
        """The attribute of the module, or of one that holds it, that states a factor; or the field of its
        configuration."""
        owners = [self.module.get_submodule(path) for path in upwards(self.trace.module)]
        for owner in owners:
            if field := configured(owner, value):
                return field
        for owner in owners:
            for name in SCALE_ATTRIBUTES:
                stated = getattr(owner, name, None)
                if (
                    isinstance(stated, int | float)
                    and stated
                    and (isclose(stated, value, rel_tol=2e-3) or isclose(1 / stated, value, rel_tol=2e-3))
                ):
                    return f"self.{name}"
        return ""

    @cached_property
    def normalised(self) -> bool:
        """A norm on query or key, a learned temperature, a scale folded into the query weights (T5), or a stated factor
        of one."""
        return self._has_norm or self._learned_temperature or self._folded_scale or self._unscaled_on_purpose

    @property
    def _unscaled_on_purpose(self) -> bool:
        return self.scale == ONE and bool(self._stated(1.0))

    @property
    def bounded(self) -> bool:
        """Whether something keeps the scores from growing without end: a norm, a tanh, a clamp."""
        return self._has_norm or any(op.name.startswith(("tanh", "clamp", "sigmoid")) for op in self.trace.before)

    @property
    def highest_score(self) -> float:
        """The largest number that goes into the softmax."""
        scores = self.trace.flow.tape.values[self.trace.softmax.inputs[0]]
        return float(scores[scores.isfinite()].max()) if scores.isfinite().any() else 0.0

    @property
    def _has_norm(self) -> bool:
        ways = (
            self._way(self.influence.query_origin.rows.value, self.trace.query),
            self._way(self.influence.key_origin.rows.value, self.trace.key),
        )
        return any(is_norm(op) for way in ways for op in way)

    @property
    def _learned_temperature(self) -> bool:
        return any(number is None for _, number in self._multipliers())

    @property
    def _folded_scale(self) -> bool:
        query, key = self.trace.query_projection, self.trace.key_projection
        if query is None or key is None or query.weight == key.weight:
            return False
        spread = [float(self.trace.flow.tape.values[part.weight].detach().float().std()) for part in (query, key)]
        return spread[1] > 0 and isclose(spread[0] / spread[1], self.sizes[Size.HEAD_DIM] ** -0.5, rel_tol=0.2)

    def _way(self, source: int, target: int) -> list[Op]:
        return self.trace.flow.between(source, target)

    def _multipliers(self) -> list[tuple[Op, float | None]]:
        """The factor of each operation between the projections and the softmax."""
        trace, influence = self.trace, self.influence
        flow = trace.flow
        found: list[tuple[Op, float | None]] = []
        for source, target in (
            (influence.query_origin.rows.value, trace.query),
            (influence.key_origin.rows.value, trace.key),
            (trace.scores.output, trace.softmax.inputs[0]),
        ):
            for incoming, op in _along(flow, source, target):
                found.append((op, multiplier(flow, op, incoming)))
        if trace.scores.name in {"addmm", "baddbmm"}:
            found.append((trace.scores, multiplier(flow, trace.scores, trace.query)))
        return found

    def _masks_on(self, source: int, ops: Sequence[Op]) -> Iterator[tuple[Op, Mask | None]]:
        flow = self.trace.flow
        if source == self.trace.scores.output and self.trace.scores.name in {"addmm", "baddbmm"}:
            yield self.trace.scores, mask(flow, self.trace.scores, self.trace.query)
        for incoming, op in pairs(source, ops):
            yield op, mask(flow, op, incoming)

    def _steps(self) -> Iterator[Step]:
        trace = self.trace
        yield from self._way_steps(Stage.QUERY, trace.query_projection, trace.query)
        yield from self._way_steps(Stage.KEY, trace.key_projection, trace.key)
        yield from self._way_steps(Stage.VALUE, trace.value_projection, trace.value)
        yield self._step(StepKind.SCORES, Stage.SCORES, trace.scores)
        yield from self._path_steps(Stage.SCORES, trace.scores.output, trace.before)
        for op, found in self._masks_on_raised():
            if found is not None:
                yield self._mask_step(Stage.SCORES, op, found)
        for softmax in (trace.softmax, *(other.op for other in trace.repeated)) if trace.has_softmax else ():
            yield self._step(StepKind.SOFTMAX, Stage.WEIGHTS, softmax)
        yield from self._path_steps(Stage.WEIGHTS, trace.softmax.output, trace.after)
        yield self._step(StepKind.CONTEXT, Stage.CONTEXT, trace.context)
        for incoming, op in pairs(trace.context.output, trace.merge):
            number = multiplier(trace.flow, op, incoming)
            if number not in (None, 1.0):
                yield self._scale_step(Stage.CONTEXT, op, number)
        yield from self._merge_step()
        if trace.output is not None:
            yield self._step(StepKind.OUTPUT, Stage.CONTEXT, trace.output.op)
        for stage, dropped in self.dropped_masks:
            yield replace(self._mask_step(stage, dropped.op, dropped), used=False)

    def _way_steps(self, stage: Stage, projection: Projection | None, operand: int) -> Iterator[Step]:
        origin: Origin = getattr(self.influence, f"{stage}_origin")
        source = origin.rows.value
        if projection is not None:
            yield self._step(StepKind.PROJECTION, stage, projection.op)
        flow = self.trace.flow
        scrambled = self.influence.scrambled_split
        wrong = scrambled[1] if scrambled and scrambled[0] == stage else ""
        split = split_of(self.trace, origin, projection, operand, scrambled=bool(wrong))
        if split is not None:
            yield replace(self._step(StepKind.SPLIT, stage, split), scrambles=wrong)
        if any(is_norm(op) for op in flow.between(source, operand)):
            norm = next(op for op in flow.between(source, operand) if is_norm(op))
            yield self._step(StepKind.NORM, stage, norm)
        if stage is not Stage.VALUE:
            for incoming, op in _along(flow, source, operand):
                number = multiplier(flow, op, incoming)
                if number in (None, 1.0):
                    continue
                if not self._in_fused_call(op):
                    yield self._scale_step(stage, op, number)
                elif stage is Stage.QUERY and number is not None:
                    yield self._scale_step(stage, op, number * abs(number))

    def _in_fused_call(self, op: Op) -> bool:
        """Whether an operation is part of the fused call that computes the scores: it gives query and key the root of
        its one scale each."""
        scores = self.trace.scores
        calls = (call.first for call in self.trace.flow.tape.fused if call.place == scores.place)
        return any(first <= op.index < scores.index for first in calls)

    def _path_steps(self, stage: Stage, source: int, ops: Sequence[Op]) -> Iterator[Step]:
        flow = self.trace.flow
        if stage is Stage.SCORES and self.trace.scores.name in {"addmm", "baddbmm"}:
            number = multiplier(flow, self.trace.scores, self.trace.query)
            if number not in (None, 1.0):
                yield self._scale_step(stage, self.trace.scores, number)
        found = {op.index: applied for op, applied in self._masks_on(source, ops)}
        if stage is Stage.SCORES and self.trace.scores.index in found and found[self.trace.scores.index]:
            yield self._mask_step(stage, self.trace.scores, found[self.trace.scores.index])
        for incoming, op in pairs(source, ops):
            number = multiplier(flow, op, incoming)
            applied = found.get(op.index)
            if applied is not None:
                yield self._mask_step(stage, op, applied)
            elif number not in (None, 1.0):
                yield self._scale_step(stage, op, number)
            elif drops(flow, op):
                yield self._step(StepKind.DROPOUT, stage, op)
            elif op.name in {"add", "add_"}:
                yield self._step(StepKind.BIAS, stage, op)
            elif stage is Stage.WEIGHTS and op.name in {"div", "div_"}:
                yield self._step(StepKind.NORM, stage, op)

    def _merge_step(self) -> Iterator[Step]:
        wrong = "" if self.influence.scrambled_split else self.influence.scrambled_merge
        merge = merge_of(self.trace, self.influence, scrambled=bool(wrong))
        if merge is not None:
            yield replace(self._step(StepKind.MERGE, Stage.CONTEXT, merge), scrambles=wrong)

    @cached_property
    def dropped_masks(self) -> list[tuple[Stage, Mask]]:
        """Masks of the scores or weights whose result reaches nothing that the module returns."""
        tape = self.trace.flow.tape
        on_path = {
            Stage.SCORES: self._values_on(self.trace.scores.output, self.trace.before),
            Stage.WEIGHTS: self._values_on(self.trace.softmax.output, self.trace.after),
        }
        found: list[tuple[Stage, Mask]] = []
        for op in tape.ops[self.trace.scores.index + 1 :]:
            if op.name not in _MASKING or not tape.alive.isdisjoint(op.outputs):
                continue
            for stage, values in on_path.items():
                incoming = next((read for read in op.inputs if read in values), None)
                applied = None if incoming is None else mask(self.trace.flow, op, incoming)
                if applied is not None:
                    found.append((stage, applied))
        return found

    @property
    def late_masks(self) -> list[Mask]:
        """The masks applied to the weights."""
        return [found for _, found in self._masks_on(self.trace.softmax.output, self.trace.after) if found]

    @property
    def all_masks(self) -> list[Mask]:
        """Every mask of this computation: before the softmax, after it, and those that were thrown away."""
        return [*self.masks, *self.late_masks, *(found for _, found in self.dropped_masks)]

    def _values_on(self, source: int, ops: Sequence[Op]) -> set[int]:
        return {source, *(output for op in ops for output in op.outputs)}

    def _scale_step(self, stage: Stage, op: Op, number: float | None) -> Step:
        assert number is not None
        step = self._step(StepKind.SCALE, stage, op)
        return replace(step, factor=self._named(number), divides=op.name.startswith(("div", "true_divide")))

    def _mask_step(self, stage: Stage, op: Op, applied: Mask | None) -> Step:
        assert applied is not None
        return replace(self._step(StepKind.MASK, stage, op), fill=applied.fill)

    def _step(self, kind: StepKind, stage: Stage, op: Op) -> Step:
        shape = tuple(self.trace.flow.tape.values[op.output].shape)
        return Step(kind, stage, op.location, shape, text=op.name)


def _along(flow: Flow, source: int, target: int) -> Iterator[tuple[int, Op]]:
    return pairs(source, flow.chain(source, target))


def pairs(source: int, ops: Sequence[Op]) -> Iterator[tuple[int, Op]]:
    """Each operation of a chain with the value that flows into it."""
    incoming = source
    outputs: set[int] = {source}
    for op in ops:
        incoming = next((read for read in op.inputs if read in outputs), incoming)
        yield incoming, op
        outputs = set(op.outputs)


def upwards(path: str) -> Iterator[str]:
    """A module path and those of the modules that hold it, the innermost first."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""
