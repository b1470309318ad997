from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, alike, seeded

PROMISES: dict[str, Any] = {"masks": {"mask": "attend"}}


def build(files: Files) -> nn.Module:
    module = files.load("wenet/transformer/attention.py", only={"MultiHeadedAttention"}, given={"T_CACHE": tuple})
    return seeded(lambda: module.MultiHeadedAttention(H, WIDTH, 0.1, use_sdpa=True))


def inputs() -> Call:
    return alike(B, T, WIDTH)[0], {"mask": torch.ones(B, 1, T, dtype=torch.bool)}
