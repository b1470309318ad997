from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


def build(files: Files) -> nn.Module:
    module = files.load("src/models/attention.py")
    return seeded(lambda: module.MultiHeadAttention(H, WIDTH, 11))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
