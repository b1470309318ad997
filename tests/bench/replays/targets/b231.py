from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"masks": {"mask": "attend"}}


def build(files: Files) -> nn.Module:
    module = files.load("otrans/module/attention.py")
    return seeded(lambda: module.MultiHeadedSelfAttentionWithRelPos(H, WIDTH))


def inputs() -> Call:
    mask = torch.ones(B, 1, T, dtype=torch.bool)
    return (randn(B, T, WIDTH), mask, randn(1, T, WIDTH, seed=2)), {}
