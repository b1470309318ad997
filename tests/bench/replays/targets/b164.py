from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, D, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    module = files.load("fuxictr/pytorch/layers/attention.py")
    return seeded(lambda: module.MultiHeadSelfAttention(WIDTH, D, num_heads=H, use_scale=True))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
