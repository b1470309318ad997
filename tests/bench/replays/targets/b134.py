from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"masks": {"mask": "additive"}}


def build(files: Files) -> nn.Module:
    module = files.load("transformer.py", only={"MultiHeadAttention", "scaled_dot_product"})
    return seeded(lambda: module.MultiHeadAttention(WIDTH, H))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {"mask": torch.zeros(T, T)}
