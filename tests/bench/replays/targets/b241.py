from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.bench.replays.kit import WIDTH, B, Call, D, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True, "scale": D**-0.5}


class Biased(nn.Module):
    """What flex attention computes with a score function, written out."""

    def __init__(self, score_mod: Any) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.score_mod = score_mod

    def forward(self, x: Tensor) -> Tensor:
        batch, time, _ = x.shape
        query, key, value = self.qkv(x).view(batch, time, 3, H, D).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) * D**-0.5
        places = torch.arange(time)
        scores = self.score_mod(scores, 0, torch.arange(H)[:, None, None], places[:, None], places)
        scores = scores.masked_fill(places > places[:, None], float("-inf"))
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


def build(files: Files) -> nn.Module:
    module = files.load("attn_gym/mods/alibi.py")
    return seeded(lambda: Biased(module.generate_alibi_bias(H)))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
