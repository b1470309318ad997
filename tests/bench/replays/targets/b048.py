from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import B, Call, D, Files, T, lengths_mask, randn, seeded

PROMISES: dict[str, Any] = {"masks": {"mask": "attend"}}


def build(files: Files) -> nn.Module:
    module = files.load("vit_pytorch/vit_pytorch.py", only={"Attention"})
    return seeded(lambda: module.Attention(11, heads=B, dim_head=D))


def inputs() -> Call:
    return (randn(B, T, 11), lengths_mask(2, 3, 4, size=T - 1)), {}
