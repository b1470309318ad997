from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, lengths_mask, randn, seeded

PROMISES: dict[str, Any] = {"masks": {"attn_mask": "attend"}}


def build(files: Files) -> nn.Module:
    given = {"MultiheadAttention": nn.MultiheadAttention}
    module = files.load("model_zoo/DMIN/src/DMIN.py", given=given, only={"BehaviorRefinerLayer"})
    return seeded(lambda: module.BehaviorRefinerLayer(WIDTH, 17, H))


def inputs() -> Call:
    keeps = lengths_mask(3, 5, 4)[:, None] | torch.eye(T, dtype=torch.bool)
    keeps = (keeps & torch.ones(T, T, dtype=torch.bool).tril()).repeat_interleave(H, 0)
    return (randn(B, T, WIDTH),), {"attn_mask": keeps}
