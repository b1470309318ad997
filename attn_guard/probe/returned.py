"""Maps of queries by keys that a module returns, compared with the weights that made its output."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import torch
from torch import Tensor

from attn_guard.anatomy import Stage
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.dropout import dropouts
from attn_guard.probe.flow import SOFTMAX, stacked
from attn_guard.probe.sites import Trace
from attn_guard.probe.tape import Op

# Weights may be cast to a lower precision on the way out.
_CLOSE = 1e-2


class Kind(StrEnum):
    """What a returned map is, held against the weights."""

    WEIGHTS = "the weights"
    AVERAGED = "the mean over heads"
    SCORES = "the scores before the softmax"
    TURNED = "the weights with queries and keys swapped"
    MOVED = "the weights with heads between queries and keys"
    REORDERED = "the weights in another order of samples or heads"
    OTHER = "other weights than those that made the output"
    UNKNOWN = "unknown"


_MISLEADING = (Kind.SCORES, Kind.TURNED, Kind.MOVED, Kind.REORDERED, Kind.OTHER)


@dataclass(frozen=True)
class Returned:
    """One returned map of one attention computation."""

    anatomy: Anatomy
    value: int

    @property
    def maker(self) -> Op:
        """The last operation on the map that is more than layout."""
        tape = self.anatomy.trace.flow.tape
        op = tape.maker(self.value)
        assert op is not None
        return op

    @cached_property
    def map(self) -> Tensor:
        """(maps, queries, keys), as returned."""
        value = self.anatomy.trace.flow.tape.values[self.value].detach().float()
        return value.reshape(-1, *value.shape[-2:])

    @cached_property
    def kind(self) -> Kind:
        trace, values = self.anatomy.trace, self.anatomy.trace.flow.tape.values
        on_path = [trace.softmax.output, *(op.output for op in trace.after)]
        weights = [stacked(values[value]).float().flatten(0, -3) for value in on_path if values[value].dim() > 1]
        if any(_match(self.map, known) for known in weights):
            return Kind.WEIGHTS
        if any(_is_mean(self.map, known) for known in weights):
            return Kind.AVERAGED
        if any(_match(self.map.mT, known) for known in weights):
            return Kind.TURNED
        value = values[self.value].detach().float()
        if value.dim() == 4 and any(_match(value.transpose(1, 2).flatten(0, 1), known) for known in weights):
            return Kind.MOVED
        scores = (values[value] for value in (trace.scores.output, *(op.output for op in trace.before)))
        if any(_match(self.map, stacked(known).float().flatten(0, -3)) for known in scores):
            return Kind.SCORES
        if any(_is_reordered(self.map, known) for known in weights):
            return Kind.REORDERED
        plausible = bool(((self.map >= 0) & (self.map <= 1 + _CLOSE)).all())
        return Kind.OTHER if plausible and self.map.shape == weights[0].shape else Kind.UNKNOWN

    @property
    def is_average(self) -> bool:
        return self.kind is Kind.AVERAGED

    @property
    def misleads(self) -> bool:
        """Whether it may be taken for the weights and is not."""
        return self.kind in _MISLEADING

    @cached_property
    def weight_of_blocked_keys(self) -> float:
        """The largest weight that other weights give to a key that a mask blocks."""
        blocked = self.anatomy.blocked
        if self.kind is not Kind.OTHER or blocked is None or blocked.shape != self.map.shape:
            return 0.0
        cells = blocked & ~blocked.all(dim=-1, keepdim=True)
        return float(self.map[cells].max()) if cells.any() else 0.0


def returned_maps(anatomy: Anatomy) -> Iterator[Returned]:
    """The returned tensors with an axis for queries and one for keys that are made of a site's query and key and not of
    its context."""
    trace = anatomy.trace
    if trace.turned or trace.sideways:
        return
    for source in (trace.scores.output, *_other_weights(trace)):
        yield from (Returned(anatomy, value) for value in maps(trace, source))


@dataclass(frozen=True)
class DroppedMap:
    """A returned map that carries dropout. ``by_hand`` says that the dropout is a call of its own, beside the softmax,
    in code of the user's."""

    op: Op
    map: Tensor
    by_hand: bool


def dropped_maps(trace: Trace) -> Iterator[DroppedMap]:
    """The returned maps that carry the dropout of the weights."""
    for stage, op in dropouts(trace):
        if stage is Stage.WEIGHTS:
            by_hand = op.place != trace.softmax.place and not op.location.installed
            yield from (DroppedMap(op, trace.flow.tape.values[value], by_hand) for value in maps(trace, op.output))


def maps(trace: Trace, source: int) -> Iterator[int]:
    """The returned values that are made of ``source`` and not of the context, and have an axis for queries and one for
    keys."""
    tape = trace.flow.tape
    sizes = sorted(stacked(tape.values[trace.scores.output]).shape[-2:])
    made = tape.descendants([source])
    for value in dict.fromkeys(tape.results()):
        shape = tape.values[value].shape
        has_axes = sizes == sorted(shape[-2:]) or (len(shape) == 4 and sizes == sorted(shape[1::2]))
        if value in made and has_axes and trace.context.output not in tape.ancestors(value):
            yield value


def _other_weights(trace: Trace) -> Iterator[int]:
    """The results of further softmaxes over products of the same query and key."""
    tape = trace.flow.tape
    projected = [part.op.output for part in (trace.query_projection, trace.key_projection) if part is not None]
    if len(projected) < 2:
        return
    made = tape.descendants(projected[:1]) & tape.descendants(projected[1:])
    before = tape.descendants([trace.scores.output])
    for op in tape.ops:
        if op.name in SOFTMAX and op.output in made and op.output not in before:
            yield op.output


def _match(found: Tensor, known: Tensor) -> bool:
    if found.shape != known.shape:
        return False
    finite = known.isfinite() & found.isfinite()
    return bool((finite | (known == found)).all()) and torch.allclose(
        found[finite], known[finite], rtol=_CLOSE, atol=1e-6
    )


def _is_mean(found: Tensor, known: Tensor) -> bool:
    """Whether each map is the mean of several: of neighbours, or of those as far apart as there are maps."""
    maps = len(found)
    if maps == 0 or len(known) % maps or len(known) == maps or found.shape[1:] != known.shape[1:]:
        return False
    shape = known.shape[1:]
    inner, outer = known.reshape(maps, -1, *shape).mean(dim=1), known.reshape(-1, maps, *shape).mean(dim=0)
    return _match(found, inner) or _match(found, outer)


def _is_reordered(found: Tensor, known: Tensor) -> bool:
    """Whether the maps are the known ones, each once, in another order."""
    if found.shape != known.shape:
        return False
    distance = torch.cdist(found.flatten(1)[None], known.flatten(1)[None], p=torch.inf)[0]
    return len(set(distance.argmin(dim=1).tolist())) == len(found) and float(distance.min(dim=1).values.max()) < 1e-6
