from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"batch_first": True}


class Sampled(nn.Module):
    """Stands in for the deformable attention, which is a compiled kernel."""

    def __init__(self, *sizes: int, with_rotation: bool) -> None:
        super().__init__()

    def forward(self, query: Tensor, *rest: object) -> tuple[Tensor]:
        return (query,)


def build(files: Files) -> nn.Module:
    given = {"DeformableBox3dAttention": Sampled, "get_activation_fn": lambda name: torch.nn.functional.relu}
    module = files.load("pcdet/models/model_utils/seed_transformer.py", given=given, only={"DGALayer"})
    return seeded(lambda: module.DGALayer(WIDTH, H, 1, 17, 0.0, "relu", 0.7))


def inputs() -> Call:
    shape, start = torch.tensor([[T, T]]), torch.tensor([0])
    src, pos = randn(B, 11, WIDTH), randn(B, 11, WIDTH, seed=2)
    return (src, pos, shape, start, randn(B, 11, 7, seed=3), randn(B, 11, seed=4)), {}
