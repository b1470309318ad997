from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, ids, lengths_mask, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    transformer = files.package("models.model.transformer").Transformer
    return seeded(lambda: transformer(1, 1, 3, 13, 13, WIDTH, H, 17, 11, 1, 0.0, torch.device("cpu")))


def inputs() -> Call:
    source = ids(B, 11).masked_fill(~lengths_mask(7, 11, 9, size=11), 1)
    target = ids(B, T, seed=2).masked_fill(~lengths_mask(3, 5, 4), 1)
    return (source, target), {}
