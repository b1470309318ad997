from __future__ import annotations

from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, D, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


def build(files: Files) -> nn.Module:
    call = files.load("torchtune/modules/attention_utils.py", given={"_SUPPORTS_FLEX_ATTENTION": False})
    given = {"_sdpa_or_flex_attention": call._sdpa_or_flex_attention}
    module = files.load("torchtune/modules/attention.py", given=given)

    def make() -> nn.Module:
        projections = {name: nn.Linear(WIDTH, WIDTH) for name in ("q_proj", "k_proj", "v_proj", "output_proj")}
        return module.MultiHeadAttention(
            embed_dim=WIDTH, num_heads=H, num_kv_heads=H, head_dim=D, attn_dropout=0.2, **projections
        )

    return seeded(make)


def inputs() -> Call:
    x = randn(B, T, WIDTH)
    return (x, x), {}
