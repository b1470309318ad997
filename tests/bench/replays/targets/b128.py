from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"batch_first": True}


def build(files: Files) -> nn.Module:
    module = files.load("look2hear/models/TDANet.py", only={"MultiHeadAttention", "PositionalEncoding"})
    return seeded(lambda: module.MultiHeadAttention(WIDTH, H, 0.1, False))


def inputs() -> Call:
    return (randn(B, WIDTH, T),), {}
