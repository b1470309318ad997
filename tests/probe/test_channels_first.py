"""Heads merged with the channels in front, where no projection follows that says which axis holds them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from tests.probe.modules import HEAD_DIM, D, H, seeded

HEIGHT, WIDTH = 2, 5


class Picture(nn.Module):
    """Attention over the places of a picture (batch, D, HEIGHT, WIDTH); ``merge`` may be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Conv2d(D, 3 * D, 1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.reshape(-1, HEAD_DIM, HEIGHT * WIDTH).mT for part in self.qkv(x).chunk(3, dim=1))
        return self.merge((q @ k.mT * HEAD_DIM**-0.5).softmax(-1) @ v, x.shape)

    def merge(self, context: Tensor, shape: torch.Size) -> Tensor:
        return context.mT.reshape(shape)


class Folded(Picture):
    """The places are cut and put together again on the way."""

    def merge(self, context: Tensor, shape: torch.Size) -> Tensor:
        cut = context.mT.reshape(-1, HEIGHT, WIDTH).permute(0, 2, 1).contiguous()
        return cut.view(shape[0], D, WIDTH, HEIGHT).mT


class Sequence(nn.Module):
    """Linear projections; the result has its channels in front."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x.flatten(2).mT).unflatten(-1, (3, H, HEAD_DIM)).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        context = (q @ k.mT * HEAD_DIM**-0.5).softmax(-1) @ v
        return context.mT.reshape(x.shape)


class NotTurned(Picture):
    """(batch · heads, positions, columns) read as (batch, channels, height, width)."""

    def merge(self, context: Tensor, shape: torch.Size) -> Tensor:
        return context.reshape(shape)


class ChannelsLast(Picture):
    """The same with the channels read behind the places."""

    def merge(self, context: Tensor, shape: torch.Size) -> Tensor:
        return context.reshape(shape[0], HEIGHT, WIDTH, D)


def found(kind: type[nn.Module]) -> list[str]:
    picture = torch.randn(2, D, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(1))
    return [finding.code for finding in attn_guard.check(seeded(kind), (picture,)) if finding.fails]


@pytest.mark.parametrize("kind", [Picture, Folded, Sequence])
def test_channels_that_are_put_in_front_of_the_places(kind: type[nn.Module]) -> None:
    assert found(kind) == []


@pytest.mark.parametrize("kind", [NotTurned, ChannelsLast])
def test_heads_that_are_merged_across_the_places(kind: type[nn.Module]) -> None:
    assert found(kind) == ["ATN304"]
