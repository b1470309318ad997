from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, alike, lengths_mask, seeded

PROMISES: dict[str, Any] = {"masks": {"mask": "attend"}}


def build(files: Files) -> nn.Module:
    module = files.load("transformer.py", only={"MultiHeadAttention"})
    return seeded(lambda: module.MultiHeadAttention(WIDTH, H))


def inputs() -> Call:
    return alike(B, T, WIDTH)[0], {"mask": lengths_mask(3, 5, 4)}
