from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import B, Call, Files, randn, seeded

PROMISES: dict[str, Any] = {"batch_first": True}


def build(files: Files) -> nn.Module:
    module = files.load("movie_gen/tae.py", only={"SpatialSelfAttention"})
    return seeded(lambda: module.SpatialSelfAttention(14))


def inputs() -> Call:
    return (randn(B, 14, 2, 5, 3),), {}
