from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Generic

from torch import nn

from tests.bench.replays.kit import B, Call, D, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


def build(files: Files) -> nn.Module:
    sys.modules["pyre_extensions"] = without = ModuleType("pyre_extensions")
    without.Generic = Generic  # type: ignore[attr-defined]
    attention = files.package("xformers.components.attention.scaled_dot_product")
    return seeded(lambda: attention.ScaledDotProduct(causal=True, seq_len=T))


def inputs() -> Call:
    return tuple(randn(B * H, T, D, seed=seed) for seed in (1, 2, 3)), {}
