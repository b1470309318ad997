from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, D, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


def build(files: Files) -> nn.Module:
    attend = files.load("magvit2_pytorch/attend.py", given={"beartype": lambda made: made}).Attend
    given = {"beartype": lambda made: made, "Attend": attend}
    module = files.load("magvit2_pytorch/magvit2_pytorch.py", given=given)

    def make() -> nn.Module:
        attend = module.TimeAttention(dim=WIDTH, dim_head=D, heads=H, causal=True)
        return nn.Sequential(attend, module.TimeDownsample2x(WIDTH))

    return seeded(make)


def inputs() -> Call:
    return (randn(B, WIDTH, T, 2, 1),), {}
