"""Weights that no product of query and key has made.

In attention pooling, each position is scored by a network or against one learned query; in additive attention, query
and key are summed. Scores of both are one for each position, so that what is to be said of masks, of the softmax
and of what it runs over holds for them as well, and nothing of the rest. Weights that a position predicts for others
(deformable attention, gates of a router) are not over positions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from attn_guard.anatomy import Axis, Site, Size, Stage, Step, StepKind
from attn_guard.probe.anatomist import pairs
from attn_guard.probe.axes import is_kept
from attn_guard.probe.entries import entries_of
from attn_guard.probe.flow import DROPOUT, LAYOUT, PRODUCT, SELECTION, SHAPE_ONLY, SUM, Flow, operands
from attn_guard.probe.masks import drops, mask
from attn_guard.probe.replay import ReplayError
from attn_guard.probe.softmax import softmaxes
from attn_guard.probe.tape import Op

_KEEPS_WEIGHTS = LAYOUT | DROPOUT | SELECTION
_KEEPS_SCORES = LAYOUT | PRODUCT | SUM | SELECTION
_SUMS = frozenset({"sum", "mean"})
_BENDS = frozenset({"tanh", "tanh_", "relu", "leaky_relu", "gelu"})


@dataclass(frozen=True)
class Weighing:
    """A softmax, and the operation in which its weights meet the content that they weigh: ``weights`` is their
    operand."""

    flow: Flow
    softmax: Op
    context: Op
    weights: int

    @classmethod
    def of(cls, flow: Flow, softmax: Op) -> Weighing | None:
        """None for weights that are something else, such as the gates of a router."""
        context = _context(flow, softmax)
        if context is None:
            return None
        behind = flow.tape.descendants([softmax.output])
        return cls(flow, softmax, context, next(read for read in context.inputs if read in behind))

    @property
    def is_over_positions(self) -> bool:
        return self.softmax_over is not None

    @cached_property
    def is_additive(self) -> bool:
        """Whether two things of content are added up before their tanh or another bend."""
        behind = self.flow.tape.ancestors(self.softmax.inputs[0])
        bends = (op for op in self.flow.tape.ops if op.name in _BENDS and op.output in behind)
        sums = (self.flow.tape.maker(op.inputs[0]) for op in bends)
        return any(op is not None and op.name in SUM and self.flow.content.issuperset(op.inputs) for op in sums)

    @cached_property
    def site(self) -> Site:
        scores = self._scores
        shape = tuple(self.flow.tape.values[self.softmax.inputs[0]].shape)
        maker = self.flow.tape.maker(scores)
        place = self.softmax.location if maker is None else maker.location
        return Site(
            self.context.module,
            (
                Step(StepKind.SCORES, Stage.SCORES, place, shape),
                *self._masks(Stage.SCORES),
                Step(StepKind.SOFTMAX, Stage.WEIGHTS, self.softmax.location),
                *self._masks(Stage.WEIGHTS),
                Step(StepKind.CONTEXT, Stage.CONTEXT, self.context.location),
            ),
            softmax_over=self.softmax_over,
            summed_over=Axis.KEYS if self.is_over_positions else None,
            sizes={} if self._keys is None else {Size.KEYS: self._keys},
        )

    @property
    def _keys(self) -> int | None:
        """How many weights are summed."""
        if self.softmax_over is Axis.KEYS and self._along is not None:
            return self._size_of(self._along)
        return None if self._summed is None else self.flow.tape.values[self.weights].shape[self._summed]

    @cached_property
    def softmax_over(self) -> Axis | None:
        """What the softmax runs along, where the weights are summed over positions; None where they are not."""
        if self._along is None or self._kept is None or not self._counts_positions(self._kept):
            return None
        size = self._size_of(self._along)
        if self._kept == self._along or self._is_summed_later(self._along):
            return Axis.KEYS
        if size == 1:
            return Axis.SINGLE
        if not self._counts_positions(self._along):
            return None
        if self._along == 0 and self._samples == {size} and not self._is_of_queries(self._along):
            return Axis.BATCH
        return Axis.QUERIES if self.is_additive else None

    @property
    def is_predicted(self) -> bool:
        """Whether the weights that are summed are made by different learned rows, from one position."""
        line = None if self._kept is None else self._line(self._kept)
        return line is not None and not self._is_in_one_row(line)

    @property
    def compares(self) -> bool:
        """Whether the softmax is over more than one score, or the sum over more than one weight."""
        return self._kept is not None or (self._along is not None and self._size_of(self._along) > 1)

    @property
    def _along(self) -> int | None:
        """The axis of the softmax, counted from the first; None where it has none."""
        dims = self.flow.tape.values[self.softmax.output].dim()
        return int(self.softmax.args[1]) % dims if dims else None

    def _size_of(self, axis: int) -> int:
        return self.flow.tape.values[self.softmax.output].shape[axis]

    @cached_property
    def _kept(self) -> int | None:
        """The axis of the softmax's weights that is summed over; None where it is not one."""
        axes = range(self.flow.tape.values[self.softmax.output].dim())
        summed = self._summed
        found = [axis for axis in axes if summed is not None and self._is_kept(axis, self.weights, summed)]
        return found[0] if len(found) == 1 else None

    def _is_kept(self, axis: int, value: int, at: int) -> bool:
        """Whether an axis of the softmax's weights is one of a value made of them, as far as it can be followed."""
        try:
            return is_kept(self.flow.tape, self.softmax.output, axis, value, at)
        except ReplayError:
            return False

    def _is_summed_later(self, along: int) -> bool:
        """Whether a later sum is over the axis of the softmax: two sums are one over both axes."""
        later = list(self._later_sums)
        if self._size_of(along) == 1:
            return any(self.flow.tape.values[value].shape[axis] == 1 for value, axis in later)
        return any(self._is_kept(along, value, axis) for value, axis in later)

    @property
    def _later_sums(self) -> Iterator[tuple[int, int]]:
        """What is summed once more, and along which axis; a mean of everything, such as a loss, is of no axis."""
        tape = self.flow.tape
        pending = list((_total(self.flow, self.context) or self.context).outputs)
        while pending:
            value = pending.pop()
            for op in tape.consumers(value):
                if op.name in _SUMS and len(op.args) > 1:
                    yield from ((value, axis) for axis in _axes_of(op.args, tape.values[value].dim()))
                if op.name in _SUMS | LAYOUT | PRODUCT:
                    pending += op.outputs

    def _is_of_queries(self, along: int) -> bool:
        """Whether an axis of additive weights is that of the rows which a product with one matrix gives."""
        if not self.is_additive or self.flow.product(self.context) is None:
            return False
        rows = -2 if self._summed == -1 else -1
        has_rows = self.flow.tape.values[self.weights].dim() > 1
        return has_rows and self._is_kept(along, self.weights, rows)

    @property
    def _samples(self) -> set[int]:
        """The sizes of the first axes of what the module was given."""
        given = (self.flow.tape.values[value] for value in self.flow.tape.inputs().values())
        return {len(value) for value in given if value.dim() > 1}

    def _counts_positions(self, axis: int) -> bool:
        """Whether the scores along an axis of the softmax are of different positions, and none of another learned
        row."""
        line = self._line(axis)
        return line is not None and self._is_in_one_row(line) and len(set(line.tolist())) == len(line) > 1

    def _line(self, axis: int) -> Tensor | None:
        """The cells of the scores that come to lie along an axis of the softmax; None where that is not known."""
        if self._learned_axes is None:
            return None
        entries = entries_of(self.flow.tape, self._scores, self.softmax.inputs[0])
        return None if entries is None else entries.movedim(axis, 0).reshape(entries.shape[axis], -1)[:, 0]

    def _is_in_one_row(self, line: Tensor) -> bool:
        """Whether some cells of the scores are made by one learned row."""
        places = torch.unravel_index(line, self.flow.tape.values[self._scores].shape)
        return all(bool((places[axis] == places[axis][0]).all()) for axis in self._learned_axes or ())

    @cached_property
    def _learned_axes(self) -> list[int] | None:
        """The axes of the scores along which learned rows are counted; None where it is not known how they are made."""
        op = self.flow.tape.maker(self._scores)
        if op is None:
            return None
        projection = self.flow.projection(op)
        if projection is not None:
            if op.name == "convolution":
                return [1] if projection.weight == operands(op)[1] else None
            dims = self.flow.tape.values[op.output].dim()
            return [dims - 1 if operands(op)[0] == projection.activation else dims - 2] if dims > 1 else []
        if op.name in _SUMS:
            return [] if self._is_of_one_row(op) else None
        return None

    def _is_of_one_row(self, total: Op) -> bool:
        """Whether a sum is of content alone, or of its product with one learned row."""
        product = self.flow.tape.maker(total.inputs[0])
        if product is None or product.name not in PRODUCT:
            return True
        summed = _axes_of(total.args, self.flow.tape.values[product.output].dim())
        learned = [self.flow.tape.values[read].shape for read in product.inputs if read in self.flow.learned]
        return all(size == 1 or place - len(shape) in summed for shape in learned for place, size in enumerate(shape))

    @cached_property
    def _summed(self) -> int | None:
        """The axis of the weights that the context is summed over; None where it is not one."""
        if self.flow.product(self.context) is not None:
            is_left = operands(self.context)[0] == self.weights
            return -1 if is_left or self.flow.tape.values[self.weights].dim() == 1 else -2
        total = _total(self.flow, self.context)
        weights = self.flow.tape.values[self.weights]
        if total is None:
            return None
        axes = _axes_of(total.args, self.flow.tape.values[self.context.output].dim())
        found = [axis for axis in axes if axis >= -weights.dim() and weights.shape[axis] > 1]
        return found[0] if len(found) == 1 else None

    @cached_property
    def _scores(self) -> int:
        """The scores as they were made, before factors, biases and masks."""
        value = self.softmax.inputs[0]
        while (op := self.flow.tape.maker(value)) is not None and op.name in _KEEPS_SCORES:
            before = next((read for read in op.inputs if read in self.flow.content), None)
            if before is None:
                break
            value = before
        return value

    @property
    def dropouts(self) -> Iterator[tuple[Stage, Op]]:
        """Where random numbers drop scores or weights."""
        return (
            (stage, op) for stage in (Stage.SCORES, Stage.WEIGHTS) for _, op in self._on(stage) if drops(self.flow, op)
        )

    def _masks(self, stage: Stage) -> Iterator[Step]:
        for incoming, op in self._on(stage):
            found = mask(self.flow, op, incoming)
            if found is not None:
                yield Step(StepKind.MASK, stage, op.location, text=op.name, fill=found.fill)

    def _on(self, stage: Stage) -> Iterator[tuple[int, Op]]:
        """The operations on the scores or on the weights, each with the value that flows into it."""
        of_scores = self._scores, self.softmax.inputs[0]
        source, target = of_scores if stage is Stage.SCORES else (self.softmax.output, self.weights)
        return pairs(source, self.flow.chain(source, target))


def weighings(flow: Flow, known: Collection[int], taken: Collection[int]) -> Iterator[Weighing]:
    """Those of every softmax but the ``known`` ones, by their weights, and of contexts that are not ``taken``."""
    others = (softmax.op for softmax in softmaxes(flow) if softmax.op.output not in known)
    found = (Weighing.of(flow, softmax) for softmax in others)
    return (one for one in found if one is not None and one.context.index not in taken)


def _context(flow: Flow, softmax: Op) -> Op | None:
    """Where weights meet content: a matrix product, or a product that is summed.

    What else reads them, such as a measure of how flat they are, has no part in it.
    """
    reached, behind = {softmax.output}, flow.tape.descendants([softmax.output])
    for op in flow.tape.ops[softmax.index + 1 :]:
        if reached.isdisjoint(op.inputs) or op.name in SHAPE_ONLY:
            continue
        is_own = behind.issuperset(op.inputs)
        if flow.product(op) is not None and not is_own:
            return op
        if op.name in _KEEPS_WEIGHTS or (
            op.name in PRODUCT and not (len(op.inputs) == 2 and flow.content.issuperset(op.inputs))
        ):
            reached.update(op.outputs)
        elif op.name in PRODUCT and not is_own and _total(flow, op) is not None:
            return op
    return None


def _total(flow: Flow, product: Op) -> Op | None:
    """The sum that a product goes into."""
    return next((after for after in flow.tape.consumers(product.output) if after.name in _SUMS), None)


def _axes_of(args: tuple[Any, ...], dims: int) -> list[int]:
    """The axes that a sum is over, counted from the last."""
    named = args[1] if len(args) > 1 and isinstance(args[1], list) and args[1] else range(dims)
    return [axis % dims - dims for axis in named]
