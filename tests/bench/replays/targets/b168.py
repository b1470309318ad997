from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, D, Files, T, randn, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    module = files.load("vision-transformer.ipynb", only={"SelfAttention"})
    return seeded(lambda: module.SelfAttention(WIDTH, D))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
