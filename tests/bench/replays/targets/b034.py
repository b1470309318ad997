from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


def build(files: Files) -> nn.Module:
    module = files.load(
        "ch03/02_bonus_efficient-multihead-attention/mha-implementations.ipynb", only={"MHAPyTorchSDPAWithoutFlash"}
    )
    return seeded(lambda: module.MHAPyTorchSDPAWithoutFlash(WIDTH, WIDTH, H, 11))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
