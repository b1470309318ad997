"""Relative biases that are added to the scores: tables that an index of offsets reads, and slopes over the distance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from attn_guard.probe.flow import LAYOUT, SUM
from attn_guard.probe.influence import Influence
from attn_guard.probe.masks import BLOCKING
from attn_guard.probe.tape import Op, Tape

FEWEST = 4
CLOSE = 1e-4
_TABLES = frozenset("embedding index index_select".split())


@dataclass(frozen=True)
class Bias:
    """Something that no content has a part in, added to the scores: the operation and what it adds, (slices, queries,
    keys). ``index`` (queries, keys) says which of the ``entries`` of a learned table each cell is, where it comes from
    one."""

    op: Op
    added: Tensor
    index: Tensor | None
    reads: Op | None
    entries: int = 0
    is_learned: bool = False

    @property
    def falls_with_distance(self) -> bool:
        """Whether it takes from each slice in proportion to the distance of earlier keys, by slopes that are fixed."""
        slopes = None if self.is_learned else self._slopes
        return slopes is not None and bool((slopes < 0).all())

    @property
    def rewards_distance(self) -> bool:
        """Whether each slice grows in proportion to the distance of earlier keys (Press et al. 2022 let it fall)."""
        slopes = self._slopes
        return slopes is not None and bool((slopes > 0).all())

    @property
    def _slopes(self) -> Tensor | None:
        """(slices, 1, 1): what each step to an earlier key adds; None where steps are not alike."""
        if self.index is not None or self.added.shape[-1] < FEWEST:
            return None
        size = self.added.shape[-1]
        below = torch.ones(size, size, dtype=torch.bool).tril(-1)
        distance = (torch.arange(size)[:, None] - torch.arange(size)).double()
        relative = self.added.double() - self.added.double().diagonal(dim1=-2, dim2=-1)[..., None]
        if not bool(relative[:, below].isfinite().all()) or bool((self.added[:, below] <= BLOCKING).any()):
            return None
        slope = relative[:, -1:, :1] / (size - 1)
        linear = ((relative - slope * distance).abs() <= CLOSE * slope.abs() * size)[:, below].all()
        return slope if linear else None

    @property
    def has_slopes_without_distance(self) -> bool:
        """Whether the heads add one thing by slopes that halve again and again (ALiBi), and this is no function of the
        distance, on a line or a grid. What is added to all keys of a query alike is of no effect."""
        size, below = self.added.shape[-1], torch.ones(self.added.shape[-2:], dtype=torch.bool).tril()
        if self.index is not None or self.is_learned or size < FEWEST:
            return False
        relative = self.added.double() - self.added.double().diagonal(dim1=-2, dim2=-1)[..., None]
        known = below if not bool(relative.isfinite().all()) else torch.ones_like(below)
        if not bool(relative[:, known].isfinite().all()) or bool((self.added[:, known] <= BLOCKING).any()):
            return False
        base = relative.where(known, 0.0)
        if not _have_slopes(base.flatten(1)):
            return False
        cells, last = base[0], base[0, 1:, 1:]
        grids = ((part, shape) for part in (cells, last) for shape in ((len(part),), *_grids(len(part))))
        return not any(_follows_offsets(part, shape, known[-len(part) :, -len(part) :]) for part, shape in grids)

    @property
    def wrong_index(self) -> str:
        """What is wrong with the index of a table; "" where it is one of offsets on a line or a grid, or of pairs."""
        index = self.index
        if index is None or len(index) < FEWEST:
            return ""
        if self._is_flat_index_of_a_grid(index):
            return "the places of a grid numbered in a row; its table has an entry for each step down and right"
        shared = ""
        for cells in (index, index[1:, 1:]):  # a class token may have entries of its own
            if len(torch.unique(cells)) == cells.numel() or _on_a_line(cells):
                return ""
            found = [wrong for shape in _grids(len(cells)) if (wrong := _on_a_grid(cells, shape)) is not None]
            if "" in found:
                return ""
            shared = shared or next(iter(found), "")
        return shared or "cells of one offset read different entries"

    def _is_flat_index_of_a_grid(self, index: Tensor) -> bool:
        """Whether an index counts the steps along a line, from 0, in a table that is made for the offsets on a
        grid."""
        size = len(index)
        if self.entries <= 2 * size - 1 or not _on_a_line(index):
            return False
        counts = torch.equal(torch.unique(index), torch.arange(2 * size - 1))
        return counts and self.entries in (prod(2 * n - 1 for n in shape) for shape in _grids(size))


def biases(influence: Influence) -> Iterator[Bias]:
    """The biases of a self-attention, in the order in which they are added."""
    trace = influence.trace
    tape = trace.flow.tape
    values, given = tape.values, tape.descendants(tape.inputs().values())
    rows = values[trace.scores.output].shape[-2:]
    if influence.is_self is not True or trace.sideways or rows[0] != rows[1]:
        return
    for op in trace.before:
        others = [value for value in op.inputs if value not in given]
        if op.name in SUM and len(op.inputs) == 2 and len(others) == 1 and values[op.output].shape[-2:] == rows:
            if not values[others[0]].is_floating_point() or values[others[0]].shape[-2:] != rows:
                continue
            sign = -1 if op.name.startswith("sub") else 1
            reads = _reader(tape, others[0])
            index = None if reads is None else _index(tape, reads, rows[0])
            if reads is None or index is not None:
                entries = 0 if reads is None else len(values[reads.inputs[0]])
                added = sign * values[others[0]].reshape(-1, *rows).cpu()
                yield Bias(op, added, index, reads, entries, others[0] in trace.flow.learned)


def _reader(tape: Tape, value: int) -> Op | None:
    """The operation that read a bias out of a parameter."""
    op = tape.maker(value)
    while op is not None and op.name in LAYOUT - _TABLES:
        op = tape.maker(op.inputs[0])
    return op if op is not None and op.name in _TABLES and tape.is_parameter(op.inputs[0]) else None


def _index(tape: Tape, reads: Op, size: int) -> Tensor | None:
    found = [tape.values[value] for value in reads.inputs[1:]]
    whole = [index for index in found if not index.is_floating_point() and index.numel() == size * size]
    return whole[0].reshape(size, size).cpu() if len(whole) == 1 else None


def _on_a_line(cells: Tensor) -> bool:
    return bool((cells[1:, 1:] == cells[:-1, :-1]).all())


def _have_slopes(slices: Tensor) -> bool:
    """Whether each of several slices is the one before it times one factor of less than one, the same for all."""
    first = slices[0]
    largest = first.abs().argmax()
    slopes = slices[:, largest]
    if len(slices) < 2 or not bool((slopes != 0).all()):
        return False
    scaled = slopes[:, None] / slopes[0] * first
    ratios = slopes[1:] / slopes[:-1]
    falls = bool(((ratios - ratios[0]).abs() <= CLOSE).all()) and 0 < float(ratios[0]) < 1
    return falls and bool(((slices - scaled).abs() <= CLOSE * slopes.abs().max()).all())


def _follows_offsets(cells: Tensor, shape: tuple[int, ...], known: Tensor) -> bool:
    """Whether known cells of one offset hold one number, with positions laid out on axes of these sizes."""
    places = torch.cartesian_prod(*(torch.arange(length) for length in shape)).view(len(cells), -1)
    offsets = (places[:, None] - places[None, :])[known]
    number = torch.unique(offsets, dim=0, return_inverse=True)[1]
    held = cells[known]
    mean = torch.zeros(int(number.max()) + 1, dtype=held.dtype).scatter_reduce(
        0, number, held, "mean", include_self=False
    )
    return bool(((held - mean[number]).abs() <= CLOSE * held.abs().max()).all())


def _grids(size: int) -> Iterator[tuple[int, ...]]:
    """The ways of laying out this many positions on two or three axes."""
    for rows in range(2, size // 2 + 1):
        if size % rows == 0:
            yield rows, size // rows
            yield from ((rows, *rest) for rest in _grids(size // rows) if len(rest) == 2)


def _on_a_grid(cells: Tensor, shape: tuple[int, ...]) -> str | None:
    """What is wrong with an index that is a function of the offset on a grid; None for one that is not."""
    places = torch.cartesian_prod(*(torch.arange(length) for length in shape))
    offsets = (places[:, None] - places[None, :]).flatten(0, 1).tolist()
    entry: dict[tuple[int, ...], int] = {}
    for offset, number in zip(map(tuple, offsets), cells.flatten().tolist(), strict=True):
        if entry.setdefault(offset, number) != number:
            return None
    owner: dict[int, tuple[int, ...]] = {}
    for offset, number in entry.items():
        other = owner.setdefault(number, offset)
        if [abs(step) for step in other] != [abs(step) for step in offset]:
            return f"offsets {other} and {offset} share one entry"
    return ""
