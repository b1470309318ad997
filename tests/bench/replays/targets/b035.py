from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, lengths_mask, randn, seeded

PROMISES: dict[str, Any] = {"masks": {"attention_mask": "attend"}}


def norm(x: Tensor) -> Tensor:
    return torch.nn.functional.rms_norm(x, (x.size(-1),))


def build(files: Files) -> nn.Module:
    path = "torchTextClassifiers/model/components/text_embedder.py"
    module = files.load(path, given={"norm": norm}, only={"LabelAttentionConfig", "LabelAttention"})
    return seeded(lambda: module.LabelAttention(module.LabelAttentionConfig(H, 11, WIDTH)))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {"attention_mask": lengths_mask(3, 5, 4).long()}
