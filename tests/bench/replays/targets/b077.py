from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import B, Call, Files, T, randn, seeded

PROMISES: dict[str, Any] = {"cross": True}


def build(files: Files) -> nn.Module:
    module = files.load("nisqa/NISQA_lib.py", only={"Alignment", "AttDot", "AttLuong", "ApplySoftAttention"})
    return seeded(lambda: module.Alignment("luong", "soft", q_dim=7, y_dim=11))


def inputs() -> Call:
    return (randn(B, T, 7), randn(B, 13, 11, seed=2), torch.tensor([13, 9, 11])), {}
