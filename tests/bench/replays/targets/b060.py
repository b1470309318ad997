from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from tests.bench.replays.kit import B, Call, Files, randn, seeded

PROMISES: dict[str, Any] = {"cross": True}


def rearrange_many(tensors: Any, pattern: str, **sizes: int) -> tuple[Tensor, ...]:
    rearrange = import_module("einops").rearrange  # the public file needs it, and the table of faults does not
    return tuple(rearrange(tensor, pattern, **sizes) for tensor in tensors)


def build(files: Files) -> nn.Module:
    module = files.load("flamingo_pytorch/flamingo_pytorch.py", given={"rearrange_many": rearrange_many})
    return seeded(lambda: module.MaskedCrossAttention(dim=14, dim_head=7, heads=2))


def inputs() -> Call:
    media = torch.zeros(B, 11, dtype=torch.bool)
    media[:, [3, 7]] = True
    return (randn(B, 11, 14), randn(B, 2, 5, 14, seed=2)), {"media_locations": media}
