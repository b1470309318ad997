from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import B, Call, D, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


def build(files: Files) -> nn.Module:
    core = files.package("xformers.components.attention.core")
    core.SparseCS = type("SparseCS", (), {})
    attention = files.package("xformers.components.attention.global_tokens")
    return seeded(lambda: attention.GlobalAttention(0.0, torch.ones(T, 1).bool(), causal=True))


def inputs() -> Call:
    return tuple(randn(B * H, T, D, seed=seed) for seed in (1, 2, 3)), {}
