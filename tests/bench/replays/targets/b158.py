from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import B, Call, Files, T, alike, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    module = files.load("grouped_query_attention_pytorch/attention.py")
    return seeded(lambda: module.MultiheadGQA(32, 4, 2, layer_norm=False))


def inputs() -> Call:
    return alike(B, T, 32)
