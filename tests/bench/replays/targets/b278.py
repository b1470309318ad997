from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


def build(files: Files) -> nn.Module:
    module = files.load("model.py", only={"CausalSelfAttention"})
    config = SimpleNamespace(n_embd=WIDTH, n_head=H, bias=True, dropout=0.2, block_size=11)
    return seeded(lambda: module.CausalSelfAttention(config))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
