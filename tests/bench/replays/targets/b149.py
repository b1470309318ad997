from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    module = files.load("positional_encoder.py")

    def make() -> nn.Module:
        layer = nn.TransformerEncoderLayer(WIDTH, H, 17, batch_first=True)
        return nn.Sequential(module.PositionalEncoder(0.1, 13, WIDTH, batch_first=True), layer)

    return seeded(make)


def inputs() -> Call:
    return (randn(T, T, WIDTH),), {}
