from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from tests.bench.replays.kit import B, Call, Files, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


def memory_efficient_attention(query: Tensor, key: Tensor, value: Tensor, attn_bias: object) -> Tensor:
    """Attention over (batch, time, heads, head_dim), as the compiled kernel takes it."""
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    out = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=attn_bias is not None)
    return out.transpose(1, 2).contiguous()


def build(files: Files) -> nn.Module:
    rotary = files.load("xformers/components/positional_embedding/rotary.py").RotaryEmbedding
    kernels = SimpleNamespace(memory_efficient_attention=memory_efficient_attention, LowerTriangularMask=object)
    given = {"xops": kernels, "RotaryEmbedding": rotary}
    module = files.load(
        "open_lm/model.py", given=given, only={"Params", "RotaryWithCast", "xformers_attn", "CustomAttn"}
    )
    return seeded(lambda: module.CustomAttn(0, module.Params(dim=30, n_heads=3, seq_len=11)))


def inputs() -> Call:
    return (randn(B, T, 30),), {}
