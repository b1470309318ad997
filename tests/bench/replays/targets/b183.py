from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, D, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


def build(files: Files) -> nn.Module:
    module = files.load("notebooks/WS04_LMsForShakespeareAndProteins.ipynb", only={"Head", "MultiHeadAttention"})
    module.n_embd, module.block_size, module.dropout = WIDTH, 11, 0.0
    return seeded(lambda: module.MultiHeadAttention(H, D))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
