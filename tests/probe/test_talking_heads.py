"""Scores whose heads are mixed by a learned matrix on the way to the softmax."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from tests.probe.modules import HEAD_DIM, D, H, TalkingHeads, features, later, seeded


class Einsum(nn.Module):
    """The matrices are parameters, and causal."""

    factor = HEAD_DIM**-0.5

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.before, self.after = (nn.Parameter(torch.randn(H, H)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        scores = torch.einsum("bhij,hg->bgij", q @ k.mT * self.factor, self.before)
        weights = torch.einsum("bhij,hg->bgij", self.hidden(scores).softmax(-1), self.after)
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def hidden(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(later(scores.shape[-1]), -torch.inf)


class Convolved(TalkingHeads):
    """The matrices are convolutions of one pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(H, H, 1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        weights = self.mix(q @ k.mT * HEAD_DIM**-0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("build", [TalkingHeads, Convolved, Einsum])
def test_right(build: Callable[[], nn.Module]) -> None:
    report = attn_guard.check(seeded(build), features(), preview=True)
    (site,) = report.sites
    assert site.scale is not None
    assert site.scale.is_right
    assert not any(step.scrambles for step in site.steps)
    assert [finding for finding in report if finding.fails] == []


def found(build: Callable[[], nn.Module]) -> list[str]:
    return [finding.code for finding in attn_guard.check(seeded(build), features(), causal=True) if finding.fails]


def test_the_causal_mask() -> None:
    class Open(Einsum):
        def hidden(self, scores: Tensor) -> Tensor:
            return scores

    assert found(Einsum) == []
    assert found(Open) == ["ATN214"]


def test_the_scale() -> None:
    class Unscaled(Einsum):
        factor = 1.0

    class Whole(Einsum):
        factor = D**-0.5

    assert found(Unscaled) == ["ATN101"]
    assert found(Whole) == ["ATN102"]
