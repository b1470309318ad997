from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, lengths_mask, randn, seeded

PROMISES: dict[str, Any] = {"batch_first": False, "masks": {"src_key_padding_mask": "ignore"}}


def build(files: Files) -> nn.Module:
    module = files.load("lighthouse/common/qd_detr_transformer.py")
    return seeded(lambda: module.T2V_TransformerEncoderLayer(WIDTH, H, 17, 0.0))


def inputs() -> Call:
    video, text = lengths_mask(5, 3, 4), lengths_mask(4, 7, 3, size=7)
    padding = ~torch.cat([torch.ones(B, 1, dtype=torch.bool), video, text], 1)
    return (randn(1 + T + 7, B, WIDTH),), {"src_key_padding_mask": padding, "video_length": T}
