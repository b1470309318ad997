from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import B, Call, Files, randn, seeded

PROMISES: dict[str, Any] = {"batch_first": True}


def build(files: Files) -> nn.Module:
    module = files.load("model.py", only={"ResBlock", "AEALblock"})
    return seeded(lambda: module.AEALblock(64, 4, dim_feedforward=17))


def inputs() -> Call:
    return (randn(B, 64, 10, 10), randn(B, 512, 10, 10, seed=2)), {}
