"""Which positions each value of a site depends on, measured by replaying the tape with one position changed at a time.

No tolerance is needed: what does not depend on a position stays the same bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attn_guard.probe.flow import LAYOUT, NORM, PRODUCT, SUM, Flow, Projection, operands, stacked
from attn_guard.probe.replay import Replay
from attn_guard.probe.sites import Trace
from attn_guard.probe.tape import Tape, same

NONE = -1
SEVERAL = -2

# Operations after which a position's numbers are still found in rows of their own, or are moved as whole rows.
_ELEMENTWISE = frozenset("neg neg_ mean pow sqrt clamp_min tanh relu gelu silu".split())
_REARRANGES = frozenset(
    """
    gather index index_select unfold im2col roll as_strided constant_pad_nd flip overwrite copy_ repeat_interleave
    """.split()
)
KEEPS_ROWS = (LAYOUT | PRODUCT | SUM | NORM | _ELEMENTWISE) - _REARRANGES
_RESHAPES = frozenset("view _unsafe_view reshape _reshape_alias flatten unflatten".split())
_RESHUFFLES = frozenset(
    "view _unsafe_view reshape transpose permute t unsqueeze squeeze clone contiguous _to_copy alias detach".split()
)


@dataclass(frozen=True)
class Rows:
    """A value seen as rows, one per position: ``elements[r]`` are the flat indices of row r's numbers."""

    tape: Tape
    value: int
    elements: Tensor

    def __len__(self) -> int:
        return len(self.elements)

    def changed(self, rows: Tensor | list[int], generator: torch.Generator) -> Tensor:
        """The value with some rows replaced by other numbers of the same scale."""
        value = self.tape.values[self.value]
        flat = value.detach().reshape(-1).clone()
        chosen = self.elements[rows].reshape(-1)
        old = flat[chosen]
        spread = flat.float().std().nan_to_num(1.0).clamp_min(1e-3) if flat.numel() > 1 else torch.tensor(1.0)
        noise = torch.randn(old.shape, generator=generator).to(flat.device) * spread.to(flat.device)
        flat[chosen] = (noise.to(flat.dtype) + 0.5 * old).where(old.isfinite(), old)
        return torch.empty_like(value).copy_(flat.view(value.shape))

    def touched(self, difference: Tensor) -> Tensor:
        """Per row, whether any of its numbers differ."""
        return difference.reshape(-1)[self.elements.to(difference.device)].any(dim=-1)


def rows_of(tape: Tape, value: int, feature_dim: int = -1) -> Rows:
    shape = tape.values[value].shape
    elements = torch.arange(tape.values[value].numel()).view(shape)
    if feature_dim != -1 and elements.dim() > 1:
        elements = elements.movedim(feature_dim, -1)
    return Rows(tape, value, elements.reshape(-1, elements.shape[-1]) if elements.dim() else elements.view(1, 1))


@dataclass(frozen=True)
class Origin:
    """Where query, key or value of a site come from: rows of a projection's output, or of an input.

    ``tokens[r]`` identifies the input position of row r: equal numbers in two origins with equal ``source`` mean the
    same position.
    """

    rows: Rows
    source: int
    tokens: tuple[int, ...]


def origin(flow: Flow, operand: int, projection: Projection | None) -> Origin:
    tape = flow.tape
    if projection is None:
        root = _root(flow, operand)
        rows = rows_of(tape, root)
        return Origin(rows, root, tuple(range(len(rows))))
    convolution = projection.op.name == "convolution"
    left = convolution or operands(projection.op)[0] == projection.activation or projection.op.name == "linear"
    rows = rows_of(tape, projection.op.output, 1 if convolution else -1 if left else -2)
    source = _unshuffled(tape, projection.activation)
    labels = torch.arange(tape.values[source].numel()).view(tape.values[source].shape)
    moved = Replay(tape, [source], [projection.activation])({source: labels})[projection.activation]
    if convolution:
        moved = moved.movedim(1, -1)
    elif not left:
        moved = moved.transpose(-1, -2)
    tokens = moved.reshape(-1, moved.shape[-1]).long().min(dim=-1).values
    if len(tokens) != len(rows):
        tokens = torch.arange(len(rows))
    return Origin(rows, source, tuple(tokens.tolist()))


def _root(flow: Flow, value: int) -> int:
    """The content leaf that a value comes from, following its first content operand."""
    while (op := flow.tape.maker(value)) is not None:
        following = next((read for read in op.inputs if read in flow.content), None)
        if following is None:
            break
        value = following
    return value


def _unshuffled(tape: Tape, value: int) -> int:
    """The value before operations that only move all of its numbers."""
    while (op := tape.maker(value)) is not None and op.name in _RESHUFFLES:
        before = op.inputs[0]
        if tape.values[before].numel() != tape.values[value].numel():
            break
        value = before
    return value


@dataclass(frozen=True)
class Influence:
    """What changes where when one position of a site changes.

    ``queries[n, i]`` is the row of ``query`` origin that query i of slice n (one head of one sample) comes from,
    ``keys[n, j]`` and
    ``values[n, j]`` likewise (`NONE`: no row, `SEVERAL`: more than one). ``context[r, n, i]``: key row r changes
    context (n, i).
    """

    trace: Trace
    seed: int = 0

    @cached_property
    def query_origin(self) -> Origin:
        return origin(self.trace.flow, self.trace.query, self.trace.query_projection)

    @cached_property
    def key_origin(self) -> Origin:
        return origin(self.trace.flow, self.trace.key, self.trace.key_projection)

    @cached_property
    def value_origin(self) -> Origin:
        return origin(self.trace.flow, self.trace.value, self.trace.value_projection)

    @cached_property
    def queries(self) -> Tensor:
        return self._sources(self.query_origin, self.trace.query, axis=-1)

    @cached_property
    def keys(self) -> Tensor:
        return self._sources(self.key_origin, self.trace.key, axis=-2)

    @cached_property
    def values(self) -> Tensor:
        return self._sources(self.value_origin, self.trace.value, axis=-1)

    def _sources(self, source: Origin, operand: int, axis: int) -> Tensor:
        """Per slice and row of an operand, the row of its origin it comes from."""
        touched = self._touched(source, operand).any(dim=axis)
        rows = torch.arange(len(touched)).view(-1, 1, 1).expand_as(touched)
        found = torch.where(touched, rows, NONE).max(dim=0).values
        return torch.where(touched.sum(dim=0) > 1, SEVERAL, found)

    @cached_property
    def context(self) -> Tensor:
        """[key row, slice, query]: whether the context of a query changes with a key (and its value)."""
        return self._touched(self.key_origin, self.trace.context.output).any(dim=-1)

    def _touched(self, source: Origin, target: int) -> Tensor:
        """[row of the origin, slice, row, column]: where a target differs when one row of an origin is changed."""
        return self._sweeps[source.rows.value][target]

    @cached_property
    def _sweeps(self) -> dict[int, dict[int, Tensor]]:
        """Origin → target → where it differs, row by row: one replay per row shows all targets at once."""
        trace = self.trace
        wanted: dict[int, tuple[Origin, list[int]]] = {}
        for source, target in (
            (self.query_origin, trace.query),
            (self.key_origin, trace.key),
            (self.key_origin, trace.context.output),
            (self.value_origin, trace.value),
        ):
            wanted.setdefault(source.rows.value, (source, []))[1].append(target)
        return {value: self._sweep(source.rows, targets) for value, (source, targets) in wanted.items()}

    def _sweep(self, rows: Rows, targets: list[int]) -> dict[int, Tensor]:
        values = self.value_origin.rows
        together = [rows]
        if rows.value == self.key_origin.rows.value != values.value and len(values) == len(rows):
            together.append(values)
        tape = self.trace.flow.tape
        replay = Replay(tape, [part.value for part in together], targets)
        base = replay({part.value: tape.values[part.value].clone() for part in together})
        generator = torch.Generator().manual_seed(self.seed)
        found: dict[int, list[Tensor]] = {target: [] for target in targets}
        for row in range(len(rows)):
            again = replay({part.value: part.changed([row], generator) for part in together})
            for target in targets:
                found[target].append(stacked(~same(again[target], base[target])).cpu())
        return {target: torch.stack(differences) for target, differences in found.items()}

    @cached_property
    def slices(self) -> Tensor | None:
        """[slice, query, key]: whether the context of query i depends on key j; None where keys do not line up.

        A key that comes from no input position (a learned one) shows no dependence.
        """
        count, queries = self.context.shape[1:]
        if (self.keys == SEVERAL).any() or self.keys.shape[0] != count:
            return None
        index = self.keys.clamp_min(0).t()[:, :, None].expand(-1, -1, queries)
        depends = self.context.gather(0, index).permute(1, 2, 0)
        return depends & (self.keys >= 0)[:, None, :]

    @cached_property
    def is_self(self) -> bool | None:
        """Whether queries and keys come from the same positions of the same tensor; None where that cannot be told."""
        if self.query_origin.source != self.key_origin.source:
            return None if self.trace.query_projection is None else False
        return self.query_origin.tokens == self.key_origin.tokens

    @cached_property
    def later(self) -> Tensor | None:
        """[slice, query, key]: whether key j stands after the position of query i; None where order is unknown."""
        if self.slices is None or self.is_self is not True or self.queries.shape[0] != self.keys.shape[0]:
            return None
        own = (self.queries[:, :, None] == self.keys[:, None, :]) & (self.queries >= 0)[:, :, None]
        if not own.any(dim=-1).all() or self.scrambled_split:
            return None
        place = own.long().argmax(dim=-1)
        return torch.arange(self.keys.shape[1]) > place[:, :, None]

    @property
    def causal(self) -> bool | None:
        """Whether no query depends on a later key; None where order is unknown, or where there is none."""
        if self.slices is None or self.later is None or not self.later.any():
            return None
        return not (self.slices & self.later).any()

    @cached_property
    def scrambled_split(self) -> tuple[str, str] | None:
        """("query", what is wrong) where the split into heads mixes positions or heads."""
        parts = (
            ("query", self.query_origin, self.trace.query),
            ("key", self.key_origin, self.trace.key),
            ("value", self.value_origin, self.trace.value),
        )
        for name, source, operand in parts:
            path = self.trace.flow.between(source.rows.value, operand)
            if any(op.name not in KEEPS_ROWS for op in path):
                continue
            wrong = _scrambled({"query": self.queries, "key": self.keys, "value": self.values}[name])
            if wrong and (name != "query" or not self._folds_heads):
                return name, wrong
        return None

    @property
    def _folds_heads(self) -> bool:
        """Multi-query attention may lay all heads of one position out as rows of one slice, for queries only."""
        return not _has_repeats(self.keys)

    @cached_property
    def scrambled_merge(self) -> str:
        """What is wrong where one row of the merged heads takes from the contexts of several positions; "" where
        nothing is."""
        trace = self.trace
        if trace.merged is None or any(op.name not in KEEPS_ROWS for op in trace.merge) or (self.queries < 0).any():
            return ""
        if not trace.merge:
            return ""
        tape = trace.flow.tape
        merged = self._merged_rows(trace.merged)
        context = rows_of(tape, trace.context.output)
        if len(context) != self.queries.numel():
            return ""
        replay = Replay(tape, [context.value], [merged.value])
        base = replay({context.value: tape.values[context.value].clone()})[merged.value]
        generator = torch.Generator().manual_seed(self.seed)
        owners = self.queries.reshape(-1)
        takes_from = torch.zeros(len(merged), dtype=torch.long)
        for token in sorted(set(owners.tolist())):
            rows = (owners == token).nonzero().flatten()
            again = replay({context.value: context.changed(rows, generator)})[merged.value]
            takes_from += merged.touched(~same(again, base).cpu()).long()
        worst = int(takes_from.argmax())
        count = int(takes_from[worst])
        return f"row {worst} of the merged heads takes from {count} positions" if count > 1 else ""

    def _merged_rows(self, value: int) -> Rows:
        output = self.trace.output
        if output is None:
            return rows_of(self.trace.flow.tape, value)
        convolution = output.op.name == "convolution"
        left = convolution or operands(output.op)[0] == output.activation or output.op.name == "linear"
        return rows_of(self.trace.flow.tape, value, 1 if convolution else -1 if left else -2)


def _has_repeats(sources: Tensor) -> bool:
    ordered = sources.sort(dim=-1).values
    return bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any())


def _scrambled(sources: Tensor) -> str:
    """What is wrong with the rows that the slices of an operand come from; "" where nothing is.

    Heads of one sample must hold the same positions in the same order; samples share none.
    """
    if (sources == SEVERAL).any():
        slice_, row = (sources == SEVERAL).nonzero()[0].tolist()
        return f"row {row} of slice {slice_} holds numbers of several positions"
    lists = [tuple(row) for row in sources.tolist()]
    distinct = list(dict.fromkeys(lists))
    seen: dict[int, tuple[int, ...]] = {}
    for held in distinct:
        for position in set(held) - {NONE}:
            if position in seen:
                return f"one head holds positions {_brief(seen[position])}, another {_brief(held)}"
            seen[position] = held
    if _has_repeats(sources) and len(distinct) < len(lists) + 1:
        held = next(row for row in lists if len(set(row)) < len(row))
        return f"one head holds positions {_brief(held)}"
    return ""


def _brief(positions: tuple[int, ...]) -> str:
    shown = ", ".join(str(position) for position in positions[:8])
    return f"{shown}, …" if len(positions) > 8 else shown


def reshape_after(trace: Trace, projection: Projection | None, operand: int, source: int) -> int | None:
    """The index of the first operation after the projection's own line that reshapes its result."""
    own = projection.op.place if projection is not None else None
    for op in trace.flow.chain(source, operand):
        if op.name in _RESHAPES and op.place != own:
            return op.index
    return None


def last_reshape(trace: Trace) -> int | None:
    """The index of the last operation between the context and the output projection that reshapes."""
    own = trace.output.op.place if trace.output is not None else None
    found = [
        op.index for op in trace.merge if op.name in _RESHAPES and op.place != own and op.place != trace.context.place
    ]
    return found[-1] if found else None
