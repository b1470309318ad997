"""Where a mask that was handed over arrives: which of its entries each score follows.

Mostly the operations say it. Else the entries are changed in groups by the bits of their number, as rows are in
`attn_guard.probe.influence`; only the operations that make the mask are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.entries import entries_of
from attn_guard.probe.influence import NONE, SEVERAL, decoded, halves
from attn_guard.probe.on_scores import cells_at, on_scores
from attn_guard.probe.placement import Placement
from attn_guard.probe.replay import Replay, ReplayError
from attn_guard.probe.tape import Op, same

# Share of the scores that must follow exactly one entry each; of a triangle, a third do.
CLEAR = 0.25

Number = float | bool | int

# What an entry of each axis of a mask stands for: batch, head, batch · heads, query, key, or nothing.
Axes = str


@dataclass(frozen=True)
class Arrival:
    """One operation at which a mask meets the scores of a site.

    ``entries[n, i, j]`` is the number of the entry that the score of query i and key j in slice n follows (`NONE`,
    `SEVERAL`), and ``samples[n, i, j]`` that of the sample whose entries it follows; ``source`` is the mask as it
    was handed over, with its ``axes``. ``spread`` says that what meets the scores has no axis for their samples.
    """

    anatomy: Anatomy
    op: Op
    source: int
    axes: Axes
    entries: Tensor
    samples: Tensor
    place: Placement | None
    spread: bool

    @property
    def followed(self) -> Tensor:
        """(N, Tq, Tk) bool: the scores that follow exactly one entry."""
        return self.entries >= 0

    @property
    def by_key(self) -> bool:
        """Each score follows the entry of its own key (and query, where the mask has an axis for queries)."""
        return self._agree(key="key")

    @property
    def by_query(self) -> bool:
        """Each score follows the entry that a mask of keys has for its query."""
        return "q" not in self.axes and self._agree(key="query") and not self.by_key

    @property
    def of_other_samples(self) -> bool:
        """Some scores follow the mask of another sample."""
        return bool(self._strangers.any())

    @property
    def _strangers(self) -> Tensor:
        """(N, Tq, Tk): scores that follow one sample's mask, and not that of their own."""
        if self.place is None:
            return torch.zeros_like(self.samples, dtype=torch.bool)
        return (self.samples >= 0) & (self.samples != self.place.samples[:, None, None])

    @property
    def by_chance(self) -> bool:
        """The samples of the mask lie along another axis of the scores: queries, or heads for want of an axis."""
        if not self.of_other_samples:
            return False
        along_queries = (self.samples != self.samples.amax(dim=(1, 2), keepdim=True)) & (self.samples >= 0)
        return self.spread or bool(along_queries.any())

    @property
    def example(self) -> str:
        """The first score that follows another sample than its own, in words."""
        if self.place is None or not self.of_other_samples:
            return ""
        slice_, query, key = self._strangers.nonzero()[0].tolist()
        sample, other = int(self.place.samples[slice_]), int(self.samples[slice_, query, key])
        shape = list(self.anatomy.trace.flow.tape.values[self.source].shape)
        return f"with a mask {shape}, query {query} of sample {sample} follows the mask of sample {other}"

    @property
    def is_clear(self) -> bool:
        """Whether enough scores follow one entry; a few do by chance where entries are joined."""
        return bool(self.followed.float().mean() > CLEAR)

    def _agree(self, *, key: str) -> bool:
        if self.place is None or not self.is_clear:
            return False
        own = {"query": self.place.queries[:, :, None], "key": self.place.keys[:, None, :]}
        wanted = [(self._coordinate("k"), own[key]), (self._coordinate("q"), own["query"])]
        wanted.append((self._coordinate("b"), self.place.samples[:, None, None]))
        return all(bool((~self.followed | (seen == right)).all()) for seen, right in wanted if seen is not None)

    def _coordinate(self, axis: str) -> Tensor | None:
        """Where the followed entries lie along one axis of the mask; None for a mask without it."""
        shape = self.anatomy.trace.flow.tape.values[self.source].shape
        places = torch.unravel_index(self.entries.clamp_min(0), shape)
        if axis == "b" and "n" in self.axes and self.place is not None:
            heads = shape[0] // (int(self.place.samples.max()) + 1)
            return places[0] // max(1, heads)
        return places[self.axes.index(axis)] if axis in self.axes else None

    @cached_property
    def hides_marked(self) -> bool | None:
        """Whether scores are blocked where the mask holds True (or 1); None where that is not clear."""
        mask = self.anatomy.trace.flow.tape.values[self.source].reshape(-1)
        blocked = self._blocked_here
        if blocked is None or not self.followed.any() or mask.is_floating_point():
            return None
        marked = mask.bool().cpu()[self.entries.clamp_min(0)][self.followed]
        hidden = blocked.cpu()[self.followed]
        if (hidden == marked).all():
            return True
        return False if (hidden == ~marked).all() else None

    @property
    def _blocked_here(self) -> Tensor | None:
        """The cells that this operation blocks; all that are blocked, where it is no mask by itself."""
        own = next((mask.blocked for mask in self.anatomy.masks if mask.op is self.op), None)
        cells = None if own is None else cells_at(self.anatomy, self.op, own)
        return self.anatomy.blocked if cells is None else cells


def arrivals(
    anatomy: Anatomy, name: str, axes: Axes, placed: Callable[[Anatomy], Placement | None]
) -> Iterator[Arrival]:
    """Each operation at which the mask argument ``name`` meets the scores of a site."""
    flow = anatomy.trace.flow
    tape = flow.tape
    source = tape.inputs().get(name)
    if source is None or anatomy.trace.sideways:
        return
    made = tape.descendants([source])
    for incoming, op in on_scores(anatomy):
        for operand in op.inputs:
            if operand == incoming or operand not in made or operand in flow.content:
                continue
            place = placed(anatomy)
            names = [torch.arange(tape.values[source].numel())]
            whose = _samples(tape.values[source], axes, place)
            found = _followed(anatomy, source, operand, op, names if whose is None else [*names, whose])
            if found is not None:
                entries, samples = found if len(found) == 2 else (*found, torch.tensor(NONE).expand(1, 1, 1))
                spread = _spread(tape.values[operand], tape.values[op.output])
                yield Arrival(anatomy, op, source, axes, entries, samples, place, spread)


def _spread(operand: Tensor, scores: Tensor) -> bool:
    """Whether one part of a mask meets the scores of all samples."""
    own = operand.shape[0] if operand.dim() == scores.dim() else 1
    return own == 1 < scores.shape[0]


def _samples(mask: Tensor, axes: Axes, place: Placement | None) -> Tensor | None:
    """The number of the sample that each entry of a mask belongs to; None where all samples share it."""
    axis = next((axes.index(name) for name in "bn" if name in axes), None)
    if axis is None or place is None:
        return None
    size, count = mask.shape[axis], int(place.samples.max()) + 1
    whose = torch.arange(size) // max(1, size // count)
    return whose.view(-1, *[1] * (mask.dim() - 1 - axis)).expand(mask.shape).flatten()


def _followed(anatomy: Anatomy, source: int, operand: int, op: Op, names: list[Tensor]) -> list[Tensor] | None:
    """For each cell of the scores, the number of the entry that ``operand`` answers to there; once for each way to
    number the entries."""
    tape = anatomy.trace.flow.tape
    scores = tape.values[op.output].shape
    where = cells_at(anatomy, op, torch.arange(scores.numel()).view(scores))
    if where is None:
        return None
    replay, marked = Replay(tape, [source], [operand]), _marked(tape.values[source])
    entries = entries_of(tape, source, operand)

    def answers(fill: Number, other: Number, groups: list[Tensor]) -> Tensor:
        """[group, ...]: the cells that change when the entries of a group do, in a mask that is ``fill`` elsewhere."""
        base = torch.full_like(tape.values[source], fill)
        before = replay({source: base})[operand]
        changed = (replay({source: _flipped(base, group, other)})[operand] for group in groups)
        return torch.stack([(~same(again, before)).expand(scores).flatten()[where] for again in changed]).cpu()

    try:
        if entries is None:
            return [_by_bits(answers, marked, numbers) for numbers in names]
        own = entries.expand(scores).flatten()[where].cpu()
        (answered,) = answers(0, marked, names[:1])
        return [torch.where(answered, numbers[own], NONE) for numbers in names]
    except (ReplayError, RuntimeError):
        return None


def _by_bits(answers: Callable[[Number, Number, list[Tensor]], Tensor], marked: Number, numbers: Tensor) -> Tensor:
    """Which number each cell answers to, when the entries change whose number has a bit, or has it not.

    Looked at from a mask that marks nothing and from one that marks everything, since of two entries that are joined
    only one counts while the other hides.
    """
    groups = [torch.isin(numbers, half).nonzero().flatten() for half in halves(int(numbers.max()) + 1)]
    return _agreed(*(_one_or_several(answers(fill, other, groups)) for fill, other in ((0, marked), (marked, 0))))


def _agreed(first: Tensor, second: Tensor) -> Tensor:
    return torch.where((first == second) | (second == NONE), first, torch.where(first == NONE, second, SEVERAL))


def _one_or_several(touched: Tensor) -> Tensor:
    """Like `decoded`, of what `halves` changed, in their order; a cell that answers to some bits only follows several
    entries."""
    by_bits = touched.view(-1, 2, *touched.shape[1:])
    answered = by_bits.any(dim=1)
    return torch.where(answered.any(dim=0) & ~answered.all(dim=0), SEVERAL, decoded(by_bits))


def _marked(mask: Tensor) -> Number:
    """The entry of a mask that is not 0."""
    if not mask.is_floating_point():
        return True if mask.dtype == torch.bool else 1
    return 1.0 if ((mask == 0) | (mask == 1)).all() else torch.finfo(mask.dtype).min


def _flipped(base: Tensor, group: Tensor, other: Number) -> Tensor:
    """A base with some entries set the other way."""
    flat = base.reshape(-1).clone()
    flat[group] = other
    return flat.view(base.shape)
