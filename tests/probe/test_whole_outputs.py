"""Padding where the output has no place for each token: queries of its own, or one vector per sample."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from tests.probe.modules import HEAD_DIM, D, H, features, seeded


class LabelQueries(nn.Module):
    """Eleven learned labels read the sequence; ``keep`` is 1 at real tokens."""

    def __init__(self, use: str, pooled: bool) -> None:
        super().__init__()
        self.labels = nn.Parameter(torch.randn(11, D))
        self.q, self.kv, self.out = nn.Linear(D, D), nn.Linear(D, 2 * D), nn.Linear(D, D)
        self.use, self.pooled = use, pooled

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        q = self.q(self.labels).expand(len(x), -1, -1).unflatten(-1, (H, -1)).transpose(1, 2)
        k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.kv(x).chunk(2, -1))
        scores = q @ k.mT * HEAD_DIM**-0.5
        if self.use != "never":
            hidden = keep == (0 if self.use == "right" else 1)
            scores = scores.masked_fill(hidden[:, None, None], -1e9)
        context: Tensor = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return context.mean(dim=1) if self.pooled else context


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize(("use", "codes"), [("right", []), ("inverted", ["ATN205"]), ("never", ["ATN212"])])
def test_padding(use: str, codes: list[str], pooled: bool) -> None:
    module = seeded(LabelQueries, use, pooled)
    inputs = (features(batch=3), torch.ones(3, 5, dtype=torch.long))
    report = attn_guard.check(module, inputs, masks={"keep": "attend"})
    assert [finding.code for finding in report if finding.fails] == codes
