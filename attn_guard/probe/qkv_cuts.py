"""How a fused projection is cut into query, key and value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from attn_guard.probe.dimensions import HEADS
from attn_guard.probe.flow import Flow
from attn_guard.probe.tape import Op

if TYPE_CHECKING:
    from attn_guard.probe.anatomist import Anatomy
    from attn_guard.probe.parity import Divergence

KEY_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "kv_heads",
    "n_kv_heads",
    "n_kv_head",
    "num_key_heads",
    "n_head_kv",
    "num_query_groups",
    "n_query_groups",
)
_CUTS = frozenset("split split_with_sizes chunk".split())
_SAME_ROWS = frozenset("view _unsafe_view reshape add add_ clone".split())


@dataclass(frozen=True)
class Thirds:
    """A fused projection of ``heads`` query heads and ``key_heads`` heads of keys and of values, cut in equal
    thirds."""

    op: Op
    heads: int
    key_heads: int
    head_dim: int

    @property
    def right(self) -> tuple[int, int, int]:
        return self.heads * self.head_dim, self.key_heads * self.head_dim, self.key_heads * self.head_dim

    @property
    def third(self) -> int:
        return (self.heads + 2 * self.key_heads) * self.head_dim // 3


def equal_thirds(module: nn.Module, flow: Flow) -> Iterator[Thirds]:
    """The cuts in thirds of projections that a module with fewer heads of keys made as wide as its heads need."""
    tape = flow.tape
    for op in tape.ops:
        sizes = [tape.values[output].shape[-1] for output in op.outputs] if op.name in _CUTS else []
        if len(sizes) != 3 or len(set(sizes)) != 1 or tape.values[op.inputs[0]].shape[-1] != sum(sizes):
            continue
        owner = module.get_submodule(op.module)
        heads, key_heads = (_stated(owner, names) for names in ((*HEADS, "num_q_heads"), KEY_HEADS))
        width = _width_into(flow, op.inputs[0])
        if not (0 < key_heads < heads) or not width:
            continue
        head_dim = _stated(owner, ("head_dim", "head_size", "d_head", "dim_head")) or width // heads
        if (heads + 2 * key_heads) * head_dim == sum(sizes):
            yield Thirds(op, heads, key_heads, head_dim)


def _stated(owner: nn.Module, names: tuple[str, ...]) -> int:
    """What a module, or its configuration, states under one of the names; 0 where it states nothing."""
    sources: tuple[Any, ...] = (owner, getattr(owner, "config", None))
    found = (getattr(source, name, None) for source in sources for name in names)
    return next((value for value in found if isinstance(value, int) and value > 0), 0)


def _width_into(flow: Flow, value: int) -> int:
    """The width of what goes into the projection that a value comes from; 0 where it comes from none."""
    tape = flow.tape
    while (op := tape.maker(value)) is not None:
        projection = flow.projection(op)
        if projection is not None:
            return tape.values[projection.activation].shape[-1]
        if op.name not in _SAME_ROWS:
            break
        value = op.inputs[0]
    return 0


@dataclass(frozen=True)
class OtherCut:
    """An attention that cuts its fused projection in another order than the same one does on another path."""

    anatomy: Anatomy
    usual: Anatomy
    path: str


def other_cuts(divergences: Sequence[Divergence]) -> Iterator[OtherCut]:
    """Attention computations that take their queries from other columns of one fused projection on another path."""
    for divergence in divergences:
        for usual, other in zip(divergence.usual.sites, divergence.other.sites, strict=False):
            ours, theirs = (_query_columns(site) for site in (usual, other))
            if ours and theirs and ours != theirs:
                yield OtherCut(other, usual, divergence.other.text)


def _query_columns(site: Anatomy) -> frozenset[int]:
    """The blocks of columns that hold queries; none where the projection is not fused, or blocks are not known."""
    query, key = site.trace.query_projection, site.trace.key_projection
    columns = site.influence.columns_of("query") if query is not None and query == key else None
    if columns is None or (columns < 0).any():
        return frozenset()
    return frozenset(columns.flatten().tolist())
