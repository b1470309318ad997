from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, ids, lengths_mask, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    module = files.load("VAE.py", only={"BetaTCVAE"})
    return seeded(lambda: module.BetaTCVAE(13, WIDTH, 17, WIDTH, H, 1, 4, "cpu"))


def inputs() -> Call:
    tokens = ids(B, T).masked_fill(~lengths_mask(3, 4, 5), 4)
    return (tokens,), {}
