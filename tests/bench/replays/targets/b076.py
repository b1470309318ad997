from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, Call, Files, H, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


def build(files: Files) -> nn.Module:
    module = files.load("memory_compressed_attention/memory_compressed_attention.py")
    return seeded(lambda: module.MemoryCompressedAttention(WIDTH, heads=H, causal=True, compression_factor=3))


def inputs() -> Call:
    return (randn(1, 11, WIDTH),), {}
