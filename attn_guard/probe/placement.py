"""Which sample and which time step each query and key of a site belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from attn_guard.probe.influence import NONE, SEVERAL, Influence
from attn_guard.probe.origins import Origin


@dataclass(frozen=True)
class Placement:
    """``samples[n]`` is the sample that slice n belongs to, ``queries[n, i]`` and ``keys[n, j]`` are time steps; `NONE`
    where a row comes from no input position."""

    samples: Tensor
    queries: Tensor
    keys: Tensor


def placement(influence: Influence, batch: int, *, batch_first: bool = True) -> Placement | None:
    """Where the rows of a site stand in a batch; None where they do not line up with (batch, time)."""
    keys = _coordinates(influence, influence.keys, influence.key_origin, batch, batch_first)
    queries = _coordinates(influence, influence.queries, influence.query_origin, batch, batch_first)
    if keys is None or queries is None:
        return None
    samples = keys[0].amax(dim=1)
    if not ((keys[0] == samples[:, None]) | (keys[0] == NONE)).all() or (samples < 0).any():
        return None
    return Placement(samples, queries[1], keys[1])


def _coordinates(
    influence: Influence, rows: Tensor, source: Origin, batch: int, batch_first: bool
) -> tuple[Tensor, Tensor] | None:
    """(sample, time step) of each row."""
    shape = list(influence.trace.flow.tape.values[source.source].shape)
    if (rows == SEVERAL).any() or source.width not in shape:
        return None
    features = len(shape) - 1 if shape[-1] == source.width else shape.index(source.width)
    leading = shape[:features] + shape[features + 1 :]
    if source.by_row and prod(leading) != len(source.rows):
        return None
    known = rows.clamp_min(0)
    if source.by_row:
        axes = torch.unravel_index(known, leading)
    else:
        places = torch.unravel_index(known, shape)
        axes = (*places[:features], *places[features + 1 :])
    axes = tuple(axis for axis, size in zip(axes, leading, strict=True) if size > 1)
    leading = [size for size in leading if size > 1]
    if len(axes) == 1 and leading[0] % batch == 0:
        time = leading[0] // batch
        axes = (axes[0] // time, axes[0] % time) if batch_first else (axes[0] // batch, axes[0] % batch)
        leading = [batch, time] if batch_first else [time, batch]
    if len(axes) != 2 or batch not in leading:
        return None
    sample_axis = leading.index(batch) if leading[0] != leading[1] else int(not batch_first)
    sample, step = axes[sample_axis], axes[1 - sample_axis]
    return torch.where(rows == NONE, NONE, sample), torch.where(rows == NONE, NONE, step)
