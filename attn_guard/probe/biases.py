"""Relative biases that are added to the scores: tables that an index of offsets reads, and slopes over the distance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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
    keys). ``index`` (queries, keys) says which entry of a learned table each cell is, where it comes from one."""

    op: Op
    added: Tensor
    index: Tensor | None
    reads: Op | None

    @property
    def rewards_distance(self) -> bool:
        """Whether each slice grows in proportion to the distance of earlier keys (Press et al. 2022 let it fall)."""
        if self.index is not None or self.added.shape[-1] < FEWEST:
            return False
        size = self.added.shape[-1]
        below = torch.ones(size, size, dtype=torch.bool).tril(-1)
        distance = (torch.arange(size)[:, None] - torch.arange(size)).double()
        relative = self.added.double() - self.added.double().diagonal(dim1=-2, dim2=-1)[..., None]
        if not bool(relative[:, below].isfinite().all()) or bool((self.added[:, below] <= BLOCKING).any()):
            return False
        slope = relative[:, -1:, :1] / (size - 1)
        linear = ((relative - slope * distance).abs() <= CLOSE * slope.abs() * size)[:, below].all()
        return bool(linear and (slope > 0).all())

    @property
    def wrong_index(self) -> str:
        """What is wrong with the index of a table; "" where it is one of offsets on a line or a grid, or of pairs."""
        index = self.index
        if index is None or len(index) < FEWEST:
            return ""
        shared = ""
        for cells in (index, index[1:, 1:]):  # a class token may have entries of its own
            if len(torch.unique(cells)) == cells.numel() or _on_a_line(cells):
                return ""
            found = [wrong for shape in _grids(len(cells)) if (wrong := _on_a_grid(cells, shape)) is not None]
            if "" in found:
                return ""
            shared = shared or next(iter(found), "")
        return shared or "cells of one offset read different entries"


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
                yield Bias(op, sign * values[others[0]].reshape(-1, *rows).cpu(), index, reads)


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
