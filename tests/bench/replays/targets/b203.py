from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import B, Call, Files, T, randn, seeded

PROMISES: dict[str, Any] = {"cross": True}


def build(files: Files) -> nn.Module:
    module = files.load("src/perceiver_io/attention.py", only={"MultiHeadAttention"})
    return seeded(lambda: module.MultiHeadAttention(13, 11, qk_out_dim=14, v_out_dim=22, output_dim=11, num_heads=2))


def inputs() -> Call:
    return (randn(B, 17, 13), randn(B, T, 11, seed=2)), {}
