"""Where the queries, keys and values of a site come from, as rows: one row of numbers per position."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from attn_guard.probe.flow import Flow, Projection, operands
from attn_guard.probe.replay import Replay
from attn_guard.probe.tape import Tape, identical

_RESHUFFLES = frozenset(
    "view _unsafe_view reshape transpose permute t unsqueeze squeeze clone contiguous _to_copy alias detach".split()
)


@dataclass(frozen=True)
class Rows:
    """A value seen as rows, one per position: ``elements[r]`` are the flat indices of row r's numbers."""

    tape: Tape
    value: int
    elements: Tensor
    _drawn: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.elements)

    def changed(self, rows: Tensor | list[int], generator: torch.Generator) -> Tensor:
        """The value with some rows replaced by other numbers of the same scale; a row's other numbers are drawn
        once."""
        value = self.tape.values[self.value]
        if "other" not in self._drawn:
            self._drawn["other"] = _other(value.detach().reshape(-1), generator)
        flat = value.detach().reshape(-1).clone()
        chosen = self.elements[rows].reshape(-1)
        flat[chosen] = self._drawn["other"][chosen]
        return (
            flat.view(value.shape) if value.is_contiguous() else torch.empty_like(value).copy_(flat.view(value.shape))
        )

    def touched(self, difference: Tensor) -> Tensor:
        """Per row, whether any of its numbers differ."""
        return difference.reshape(-1)[self.elements.to(difference.device)].any(dim=-1)


def _other(flat: Tensor, generator: torch.Generator) -> Tensor:
    """Other numbers of the same scale in the place of all that are finite."""
    spread = flat.float().std().nan_to_num(1.0).clamp_min(1e-3) if flat.numel() > 1 else torch.tensor(1.0)
    noise = torch.randn(flat.shape, generator=generator).to(flat.device) * spread.to(flat.device)
    return (noise.to(flat.dtype) + 0.5 * flat).where(flat.isfinite(), flat)


def rows_of(tape: Tape, value: int, feature_dim: int = -1) -> Rows:
    shape = tape.values[value].shape
    elements = torch.arange(tape.values[value].numel()).view(shape)
    if elements.dim() > 1:
        elements = elements.movedim(feature_dim, -1)
    return Rows(tape, value, elements.reshape(-1, elements.shape[-1]) if elements.dim() else elements.view(1, 1))


@dataclass(frozen=True)
class Origin:
    """Where query, key or value of a site come from: rows of a projection's output, or of an input.

    ``positions[r]`` numbers the position of the value ``source`` that row r is projected from; two origins of one
    source number them alike. ``width`` is the size of the source's feature axis. ``by_row`` says that
    positions count rows and not elements.
    """

    rows: Rows
    source: int
    positions: Tensor
    width: int
    by_row: bool = False

    def again(self, tape: Tape, value: int, source: int) -> Origin | None:
        """The same rows in another recording; None where these hold other numbers."""
        here = self.rows.tape.values
        if not (
            identical(here[self.rows.value], tape.values[value]) and identical(here[self.source], tape.values[source])
        ):
            return None
        return replace(self, rows=replace(self.rows, tape=tape, value=value), source=source)


def origin(flow: Flow, operand: int, projection: Projection | None, known: Origin | None = None) -> Origin:
    """Where an operand comes from; ``known`` is the origin of the same operand in another recording."""
    tape = flow.tape
    value = _root(flow, operand) if projection is None else projection.op.output
    source = value if projection is None else _unshuffled(tape, projection.activation)
    return (known and known.again(tape, value, source)) or _origin(tape, value, source, projection)


def _origin(tape: Tape, value: int, source: int, projection: Projection | None) -> Origin:
    if projection is None:
        rows = rows_of(tape, value)
        return Origin(rows, source, torch.arange(len(rows)), tape.values[source].shape[-1], by_row=True)
    features = feature_axis(projection)
    rows = rows_of(tape, value, features)
    shape = tape.values[source].shape
    labels = torch.arange(shape.numel()).view(shape)
    moved = Replay(tape, [source], [projection.activation])({source: labels})[projection.activation]
    elements = moved.movedim(features, -1).reshape(-1, moved.shape[features]).long()
    positions, width = _positions(elements, labels)
    by_row = len(positions) != len(rows)
    if by_row:
        positions = torch.arange(len(rows))
    return Origin(rows, source, positions, width, by_row)


def _positions(elements: Tensor, labels: Tensor) -> tuple[Tensor, int]:
    """The position that each row of a value's elements belongs to, and the size of the value's feature axis.

    The feature axis is the one along which a row runs; a position is named by its element with feature 0.
    """
    if elements.shape[-1] < 2:
        return elements[:, 0], elements.shape[-1]
    step = int(elements[0, 1] - elements[0, 0])
    for axis in reversed(range(labels.dim())):
        if labels.stride(axis) == step and labels.shape[axis] > 1:
            first = elements[:, 0]
            return first - first // step % labels.shape[axis] * step, labels.shape[axis]
    return elements.min(dim=-1).values, elements.shape[-1]


def feature_axis(projection: Projection) -> int:
    """The axis of a projection's input and output that holds the features of one position."""
    if projection.op.name == "convolution":
        return 1
    left = projection.op.name == "linear" or operands(projection.op)[0] == projection.activation
    return -1 if left else -2


def _root(flow: Flow, value: int) -> int:
    """The leaf that a value comes from, following its first content operand (of learned values, the first learned
    one)."""
    while (op := flow.tape.maker(value)) is not None:
        kind = flow.content if value in flow.content else flow.learned
        following = next((read for read in op.inputs if read in kind), None)
        if following is None:
            break
        value = following
    return value


def _unshuffled(tape: Tape, value: int) -> int:
    """The value before operations that only move all of its numbers.

    It ends where a row of features is cut into several rows: these are positions of their own."""
    while (op := tape.maker(value)) is not None and op.name in _RESHUFFLES:
        before = op.inputs[0]
        if tape.values[before].numel() != tape.values[value].numel() or _cuts_rows(tape, before, value):
            break
        value = before
    return value


def _cuts_rows(tape: Tape, before: int, after: int) -> bool:
    """Whether the last axis is cut into several; axes of size 1 cut nothing."""
    sizes, cut = ([size for size in tape.values[value].shape if size != 1] for value in (before, after))
    return len(cut) > len(sizes) > 0 and sizes[:-1] == cut[: len(sizes) - 1]
