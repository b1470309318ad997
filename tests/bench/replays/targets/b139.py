from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, D, Files, H, T, alike, seeded

PROMISES: dict[str, Any] = {"masks": {"attn_mask": "ignore"}}


def build(files: Files) -> nn.Module:
    parts = files.load("transformer/Modules.py")
    given = {"LayerNormalization": nn.LayerNorm, "ScaledDotProductAttention": parts.ScaledDotProductAttention}
    module = files.load("transformer/SubLayers.py", given={**given, "Linear": parts.BottleLinear})
    return seeded(lambda: module.MultiHeadAttention(H, WIDTH, D, D, 0.0))


def inputs() -> Call:
    args, _ = alike(B, T, WIDTH)
    return args, {"attn_mask": torch.zeros(B, T, T, dtype=torch.bool)}
