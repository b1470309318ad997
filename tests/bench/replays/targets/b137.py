from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, alike, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    module = files.load("opacus/layers/dp_multihead_attention.py")
    return seeded(lambda: module.DPMultiheadAttention(WIDTH, H, batch_first=True))


def inputs() -> Call:
    args, _ = alike(B, T, WIDTH)
    return args, {"need_weights": False}
