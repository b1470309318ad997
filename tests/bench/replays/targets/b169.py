from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import B, Call, D, Files, randn, seeded

PROMISES: dict[str, Any] = {}


def build(files: Files) -> nn.Module:
    module = files.load("labml_nn/diffusion/ddpm/unet.py", given={"Module": nn.Module}, only={"AttentionBlock"})
    return seeded(lambda: module.AttentionBlock(22, n_heads=1, d_k=D, n_groups=2))


def inputs() -> Call:
    return (randn(B, 22, 5, 3),), {}
