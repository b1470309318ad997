from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import B, Call, Files, T, randn, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    module = files.load("src/corigami/model/blocks.py")
    return seeded(lambda: module.AttnModule(hidden=24, layers=1))


def inputs() -> Call:
    return (randn(B, T, 24),), {}
