from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import B, Call, D, Files, T, lengths_mask, randn, seeded

PROMISES: dict[str, Any] = {"cross": True, "masks": {"mask_ys": "attend"}}


def build(files: Files) -> nn.Module:
    given = {"neginf": lambda dtype: -65504 if dtype is torch.float16 else -1e20}
    module = files.load("parlai/agents/transformer/modules.py", given=given, only={"BasicAttention"})
    return seeded(lambda: module.BasicAttention(dim=2, attn="sqrt", get_weights=True))


def inputs() -> Call:
    return (randn(B, T, D), randn(B, 11, D, seed=2)), {"mask_ys": lengths_mask(7, 9, 10, size=11).long()}
