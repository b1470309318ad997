from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    module = files.load("models/Transformer.py")
    return seeded(lambda: module.Multi_Head_Attention(WIDTH, H))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
