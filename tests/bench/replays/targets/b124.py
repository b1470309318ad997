from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"batch_first": True}


def build(files: Files) -> nn.Module:
    path = "omdet/omdet_v2_turbo/ela_encoder.py"
    module = files.load(path, given={"linear_init_": lambda linear: None}, only={"TransformerLayer"})
    return seeded(lambda: module.TransformerLayer(WIDTH, H, 17))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {"pos_embed": randn(1, T, WIDTH, seed=2)}
