from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import B, Call, D, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    module = files.load("vit_pytorch/vit_pytorch.py", only={"Attention"})
    return seeded(lambda: module.Attention(11, heads=H, dim_head=D))


def inputs() -> Call:
    return (randn(B, T, 11),), {}
