from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


def build(files: Files) -> nn.Module:
    attend = files.load("x_transformers/attend.py")
    module = files.load(
        "x_transformers/x_transformers.py", given={"Attend": attend.Attend, "Intermediates": attend.Intermediates}
    )
    return seeded(lambda: module.Decoder(dim=22, depth=1, heads=H, attn_dim_head=34, rotary_pos_emb=True))


def inputs() -> Call:
    return (randn(B, T, 22),), {}
