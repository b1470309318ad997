"""Whether an attention runs along the batch, and what says which axis the batch is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.flow import SUM, Flow, stacked
from attn_guard.probe.influence import by_bit, decoded, halves
from attn_guard.probe.origins import Rows, rows_of
from attn_guard.probe.replay import Replay
from attn_guard.probe.streams import Stream, Streams
from attn_guard.probe.tape import Op

_POOLS = frozenset("mean sum amax amin select max logsumexp".split())


# Inputs as rows, and the sample that each row belongs to.
Owners = list[tuple[Rows, Tensor]]


@dataclass(frozen=True)
class _Seen:
    """The samples that the queries and keys of a site come from, negative where that is none or several."""

    site: Anatomy
    slices: Tensor
    queries: Tensor
    keys: Tensor

    @property
    def known(self) -> Tensor:
        return (self.queries[:, :, None] >= 0) & (self.keys[:, None, :] >= 0)

    @property
    def foreign(self) -> Tensor:
        return self.known & (self.queries[:, :, None] != self.keys[:, None, :])


@dataclass(frozen=True)
class Batches:
    """The samples of a call, as the attention computations see them.

    Batch and time are the first two axes of the main stream, in the order that was declared or assumed.
    """

    module: nn.Module
    flow: Flow
    streams: Streams
    sites: tuple[Anatomy, ...]

    @cached_property
    def over_batch(self) -> tuple[Anatomy, ...]:
        """The attention computations in which the keys of a query are those of other samples, one of each."""
        main = self.streams.main
        if main is None or len(main.leading) != 2 or main.leading[self.batch_axis] < 2:
            return ()
        samples = main.leading[self.batch_axis]
        # One key more may be learned.
        possible = [s for s in self.sites if samples <= self.flow.tape.values[s.trace.key].shape[-1] <= samples + 1]
        return tuple(site for site, is_over in self._over(possible) if is_over)

    @property
    def batch_axis(self) -> int:
        assert self.streams.main is not None
        return 1 - self.streams.main.time_axis

    def _over(self, sites: Sequence[Anatomy]) -> Iterator[tuple[Anatomy, bool | None]]:
        """Of each site, whether it runs over the batch; False where it runs within samples, None where it is neither
        or that is not known."""
        main = self.streams.main
        assert main is not None
        streams = [s for s in self.streams.all if len(s.leading) == 2 and self._count(s) == self._count(main)]
        owners = [(stream.rows, self._owners(stream)) for stream in streams]
        for seen in self._seen(sites, owners) if sites else ():
            if (seen.foreign & seen.slices).any():
                yield seen.site, all(_are_distinct(row[row >= 0]) for row in seen.keys) or None
            elif seen.known.all() and seen.keys.shape[1] > 1:
                yield seen.site, False

    def _seen(self, sites: Sequence[Anatomy], owners: Owners) -> Iterator[_Seen]:
        """What each site takes from which sample."""
        numbers = self._samples({site.trace.query for site in sites} | {site.trace.key for site in sites}, owners)
        for site in sites:
            slices, features = site.influence.slices, site.influence.features
            queries, keys = (
                decoded(numbers[value].any(dim=features[name]))
                for name, value in (("query", site.trace.query), ("key", site.trace.key))
            )
            if slices is not None and slices.shape == (len(queries), queries.shape[1], keys.shape[1]):
                yield _Seen(site, slices, queries, keys)

    def _samples(self, targets: set[int], owners: Owners) -> dict[int, Tensor]:
        """[bit, 0 or 1, slice, row, column] of each target: where it differs when the samples whose number has this bit
        (0: has it not) are changed."""
        values = self.flow.tape.values
        replay = Replay(self.flow.tape, [rows.value for rows, _ in owners], sorted(targets))
        base = replay({rows.value: values[rows.value].clone() for rows, _ in owners})
        generator = torch.Generator().manual_seed(self.streams.seed)
        found: dict[int, list[Tensor]] = {target: [] for target in targets}
        for group in halves(int(max(owner.max() for _, owner in owners)) + 1):
            changed = {
                rows.value: rows.changed(torch.isin(owner, group).nonzero().flatten(), generator)
                for rows, owner in owners
            }
            again = replay(changed)
            for target in targets:
                found[target].append(stacked(again[target] != base[target]).cpu())
        return {target: by_bit(differences) for target, differences in found.items()}

    def _count(self, stream: Stream) -> int:
        return stream.leading[self.batch_axis]

    def _owners(self, stream: Stream) -> Tensor:
        shape = [1, 1]
        shape[self.batch_axis] = self._count(stream)
        return torch.arange(self._count(stream)).view(shape).expand(stream.leading).flatten()

    @cached_property
    def folded(self) -> tuple[Anatomy, ...]:
        """The attention of time-first layers over an axis that the batch was folded into with another: of images, or of
        ids with more than one axis, whose first axis is the batch. Their keys are several of each sample."""
        sites = [site for site in self.sites if self._is_time_first(site)]
        owners = self._first_axes() if sites else []
        if not owners:
            return ()
        seen = self._seen(sites, owners)
        return tuple(one.site for one in seen if (one.foreign & one.slices).any() and _recur(one.keys))

    def _is_time_first(self, site: Anatomy) -> bool:
        layers = dict(self.module.named_modules())
        layer = layers.get(site.trace.scores.module)
        return isinstance(layer, nn.MultiheadAttention) and not layer.batch_first

    def _first_axes(self) -> Owners:
        """The inputs of more axes than (batch, time, features), as rows, and the place on the first axis of each."""
        tape = self.flow.tape
        rows = [s.rows for s in self.streams.all if len(s.leading) == 3]
        known = {part.value for part in rows}
        images = (value for value in tape.inputs().values() if value not in known)
        rows += [rows_of(tape, v) for v in images if tape.values[v].dim() > 3 and tape.values[v].is_floating_point()]
        counts = {len(tape.values[part.value]) for part in rows}
        if len(counts) != 1 or counts == {1}:
            return []
        (count,) = counts
        return [(part, torch.arange(count).repeat_interleave(len(part) // count)) for part in rows]

    @cached_property
    def evidence(self) -> str:
        """What says that the batch is the axis it is taken for; "" where nothing does."""
        time = 1 - self.batch_axis
        if any(axis == time for axis, _ in self._ordered_axes):
            return next(why for axis, why in self._ordered_axes if axis == time)
        sibling = next((name for name, child in self.module.named_modules() if _is_batch_first(child)), None)
        if sibling is not None and self.batch_axis == 0:
            return f"{sibling} has batch_first=True"
        if any(is_over is False for _, is_over in self._over(self.sites)):
            return f"other attention runs along axis {time}"
        main = self.streams.main
        ids = main is not None and main.rows.value not in self.flow.tape.inputs().values()
        return "token ids are (batch, time) in most code" if ids and self.batch_axis == 0 else ""

    @cached_property
    def denied(self) -> bool:
        """Whether something treats what is taken for the batch as an order: positions, pooling, or masked keys."""
        ordered = any(axis == self.batch_axis for axis, _ in self._ordered_axes)
        return ordered or any(site.blocked is not None and bool(site.blocked.any()) for site in self.over_batch)

    @cached_property
    def _ordered_axes(self) -> list[tuple[int, str]]:
        """Axes along which positions are added or which are pooled, and what says so."""
        main = self.streams.main
        if main is None or main.leading[0] == main.leading[1]:
            return []
        given = self.flow.tape.descendants([stream.rows.value for stream in self.streams.all])
        return [found for op in self.flow.tape.ops for found in self._order_in(op, main.leading, given)]

    def _order_in(self, op: Op, leading: tuple[int, ...], given: frozenset[int]) -> Iterator[tuple[int, str]]:
        values = self.flow.tape.values
        tokens = [read for read in op.inputs if read in given and _leads(values[read], leading)]
        if not tokens:
            return
        if op.name in SUM:
            for table in (read for read in op.inputs if read not in given):
                axis = _varies_along(values[table], leading)
                if axis is not None:
                    yield axis, f"positions are added along axis {axis}"
        if op.name in _POOLS and len(op.args) > 1:
            dims = op.args[1] if isinstance(op.args[1], list | tuple) else [op.args[1]]
            for axis in (0, 1):
                if dims in ([axis], [axis - 3]):
                    yield axis, f"axis {axis} is pooled"


def _are_distinct(numbers: Tensor) -> bool:
    return len(numbers) > 1 and len(torch.unique(numbers)) == len(numbers)


def _recur(keys: Tensor) -> bool:
    """Whether every slice holds several keys of each of several samples."""
    counts = [torch.unique(row[row >= 0], return_counts=True)[1] for row in keys]
    return all(len(count) > 1 and bool((count > 1).all()) for count in counts)


def _leads(value: Tensor, leading: tuple[int, ...]) -> bool:
    return value.dim() == 3 and tuple(value.shape[:2]) == leading


def _varies_along(table: Tensor, leading: tuple[int, ...]) -> int | None:
    """The one of the two axes along which a table that is added has an entry for each place."""
    shape = (1,) * (3 - table.dim()) + tuple(table.shape)
    for axis in (0, 1):
        if len(shape) == 3 and shape[axis] == leading[axis] > 1 and shape[1 - axis] == 1:
            first = table.reshape(shape).select(axis, 0).unsqueeze(axis)
            return axis if bool((table.reshape(shape) != first).any()) else None
    return None


def _is_batch_first(module: nn.Module) -> bool:
    """A recurrent or attention layer that was asked for the batch as its first axis."""
    return getattr(module, "batch_first", None) is True and next(module.parameters(), None) is not None
