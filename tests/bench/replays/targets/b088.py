from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from tests.bench.replays.kit import WIDTH, B, Call, D, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


class Prefill(nn.Module):
    """The attention with an empty cache for every call, as its model calls it first."""

    def __init__(self, attention: nn.Module, cache: Any) -> None:
        super().__init__()
        self.attention = attention
        self.cache = cache

    def forward(self, x: Tensor) -> Any:
        return self.attention(x, self.cache())


def build(files: Files) -> nn.Module:
    cache = files.load("model/config.py").KVCache
    module = files.load("model/attention.py", given={"KVCache": cache})
    config = SimpleNamespace(n_heads=H, d_k=D, d_model=WIDTH, dropout=0.0, context_length=11)
    return seeded(lambda: Prefill(module.MultiHeadAttention(config), cache))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
