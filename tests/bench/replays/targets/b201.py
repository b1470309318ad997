from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    module = files.load("README.ipynb", given={"Tensor": Tensor}, only={"MultiHeadAttention"}, first=True)
    return seeded(lambda: module.MultiHeadAttention(WIDTH, H))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
