from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import nn

from tests.bench.replays.kit import B, Call, Files, T, lengths_mask, randn, seeded

PROMISES: dict[str, Any] = {"masks": {"mask": "attend"}}


def build(files: Files) -> nn.Module:
    module = files.load("histaug/train/models/abmil.py")
    targets = [SimpleNamespace(column="y", classes=["a", "b"], type="categorical")]
    return seeded(lambda: module.AttentionMIL(targets, 11, 14, batchnorm=False))


def inputs() -> Call:
    return (randn(B, T, 11), randn(B, T, 2, seed=2), lengths_mask(3, 5, 4)), {}
