from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tests.bench.replays.kit import WIDTH, B, Call, D, Files, H, T, alike, seeded, trained

PROMISES: dict[str, Any] = {"causal": True}


def einsum(equation: str, *operands: Tensor) -> Tensor:
    """An einsum whose axes are words."""
    letters: dict[str, str] = {}

    def spelled(words: str) -> str:
        return "".join(letters.setdefault(word, chr(97 + len(letters))) for word in words.split())

    left, right = equation.split("->")
    return torch.einsum(",".join(map(spelled, left.split(","))) + "->" + spelled(right), *operands)


def build(files: Files) -> nn.Module:
    given = {"einsum": einsum, "HookPoint": nn.Identity}
    module = files.load("transformer_lens/components.py", given=given, only={"Attention"})
    config = SimpleNamespace(
        n_heads=H,
        d_model=WIDTH,
        d_head=D,
        n_ctx=11,
        dtype=torch.float32,
        use_attn_scale=True,
        scale_attn_by_inverse_layer_idx=False,
        positional_embedding_type="standard",
        use_split_qkv_input=False,
        attention_dir="causal",
        use_attn_result=False,
    )
    return seeded(lambda: trained(module.Attention(config), ""))


def inputs() -> Call:
    return alike(B, T, WIDTH)
