from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, alike, seeded

PROMISES: dict[str, Any] = {"masks": {"mask": "attend"}}


def build(files: Files) -> nn.Module:
    module = files.load("ML/Pytorch/more_advanced/transformer_from_scratch/transformer_from_scratch.py")
    return seeded(lambda: module.SelfAttention(WIDTH, H))


def inputs() -> Call:
    return alike(B, T, WIDTH)[0], {"mask": torch.ones(B, 1, 1, T)}
