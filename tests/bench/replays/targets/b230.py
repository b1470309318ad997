from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded, trained

PROMISES: dict[str, Any] = {"batch_first": False}


def build(files: Files) -> nn.Module:
    given = {"tracker": SimpleNamespace(debug=lambda *args: None)}
    parts = files.load("labml_nn/transformers/mha.py", given=given)
    path = "labml_nn/transformers/xl/relative_mha.py"
    module = files.load(path, given={"MultiHeadAttention": parts.MultiHeadAttention})

    def make() -> nn.Module:
        return trained(module.RelativeMultiHeadAttention(H, WIDTH, 0.0), "embeddings", "key_pos_bias", "query_pos_bias")

    return seeded(make)


def inputs() -> Call:
    x = randn(T, B, WIDTH)
    return (), {"query": x, "key": x, "value": x}
