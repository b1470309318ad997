from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, alike, seeded

PROMISES: dict[str, Any] = {"masks": {"mask": "attend"}}


def build(files: Files) -> nn.Module:
    core = files.load("models/layers/scale_dot_product_attention.py").ScaleDotProductAttention
    module = files.load("models/layers/multi_head_attention.py", given={"ScaleDotProductAttention": core})
    return seeded(lambda: module.MultiHeadAttention(WIDTH, H))


def inputs() -> Call:
    args, _ = alike(B, T, WIDTH)
    return args, {"mask": torch.ones(T, T).tril().bool()[None, None]}
