from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import nn

from tests.bench.replays.kit import B, Call, Files, T, randn, seeded, trained

PROMISES: dict[str, Any] = {"causal": True}


def build(files: Files) -> nn.Module:
    module = files.load("model/llama-mla.py", only={"Rotary", "apply_rotary_emb", "RMSNorm", "CausalSelfAttention"})
    config = SimpleNamespace(
        n_head=3,
        n_embd=22,
        head_dim=10,
        qk_rope_head_dim=4,
        q_lora_rank=11,
        kv_lora_rank=13,
        v_head_dim=7,
        using_groupnorm=False,
    )
    return seeded(lambda: trained(module.CausalSelfAttention(config), "c_proj.weight"))


def inputs() -> Call:
    return (randn(B, T, 22),), {}
