from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


class CausalDotProduct:
    """The compiled product, in torch: each query meets the sum of what came up to its place."""

    @staticmethod
    def apply(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        sums = torch.einsum("bhtd,bhte->bhtde", key, value).cumsum(2)
        return torch.einsum("bhtd,bhtde->bhte", query, sums)


def build(files: Files) -> nn.Module:
    sys.modules["fast_transformers"] = ModuleType("fast_transformers")
    product = sys.modules["fast_transformers.causal_product"] = ModuleType("fast_transformers.causal_product")
    compiled = "fast_transformers.causal_product.causal_product_cuda"
    sys.modules[compiled] = ModuleType(compiled)
    product.CausalDotProduct = CausalDotProduct  # type: ignore[attr-defined]
    given = {"LocalAttention": nn.Identity, "ReversibleSequence": nn.Identity, "SequentialSequence": nn.Identity}
    module = files.load("performer_pytorch/performer_pytorch.py", given=given)
    return seeded(lambda: module.SelfAttention(WIDTH, causal=True, heads=H, nb_features=13))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
