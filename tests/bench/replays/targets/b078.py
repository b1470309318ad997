from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import B, Call, D, Files, H, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


def build(files: Files) -> nn.Module:
    module = files.load("local_attention/local_attention.py")
    return seeded(lambda: module.LocalAttention(window_size=4, causal=True, look_backward=1, exact_windowsize=True))


def inputs() -> Call:
    return tuple(randn(B, H, 12, D, seed=seed) for seed in (1, 2, 3)), {}
