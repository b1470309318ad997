from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, randn, seeded

PROMISES: dict[str, Any] = {}


def latitudes(count: int, grid: str) -> tuple[Tensor, Tensor]:
    """Angles of a grid and the weights of its rows."""
    angles = torch.linspace(0.1, 3.0, count)
    return angles, angles.sin() / angles.sin().sum()


def build(files: Files) -> nn.Module:
    path = "torch_harmonics/attention/attention.py"
    module = files.load(path, given={"precompute_latitudes": latitudes}, only={"AttentionS2"})
    return seeded(lambda: module.AttentionS2(WIDTH, H, (3, 5), (3, 5), drop_rate=0.1))


def inputs() -> Call:
    return (randn(B, WIDTH, 3, 5),), {}
