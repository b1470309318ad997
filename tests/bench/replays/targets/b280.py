from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    module = files.load("src/models/utils/modules.py", only={"Attention"})
    return seeded(lambda: module.Attention(WIDTH, H, proj_drop=0.1))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
