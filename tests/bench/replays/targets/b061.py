from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, D, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"masks": {"mask": "attend"}}


def build(files: Files) -> nn.Module:
    path = "ding/torch_utils/network/transformer.py"
    module = files.load(path, given={"fc_block": lambda width, out: nn.Linear(width, out)}, only={"Attention"})
    return seeded(lambda: module.Attention(WIDTH, D, WIDTH, H, nn.Dropout(0.0)))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {"mask": torch.ones(B, 1, T, T).tril().bool()}
