"""Samples of a batch that have influence on each other, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Finding, Severity
from tests.probe import silent_modules as designs
from tests.probe.modules import STYLES, Decoder, features, seeded
from tests.probe.silent_modules import Encoder, Parts


def failing(module: nn.Module, *args: Any, **promises: Any) -> list[Finding]:
    return [found for found in attn_guard.check(module, args or None, **promises) if found.fails]


class Mixed(Encoder):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.norm = nn.BatchNorm1d(21)

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "norm":
            x = (x - x.mean(dim=0)) / (x.std(dim=0) + 1e-5)  # marked norm
        elif self.way == "whole norm":
            x = x / x.norm()  # marked whole norm
        elif self.way == "roll":
            x = x + x.roll(1, dims=0)  # marked roll
        elif self.way == "rounding":
            x = x + 50 * x.mean() - 50 * x.mean()
        elif self.way == "batch norm":
            x = self.norm(x.mT).mT
        y = super().forward(x)
        return y * y.max() if self.way == "after" else y  # marked after


@pytest.mark.parametrize("way", ["norm", "whole norm", "roll", "after"])
def test_samples_that_meet(way: str) -> None:
    (found,) = failing(seeded(Mixed, way))
    assert (found.code, found.severity) == ("ATN404", Severity.ERROR)
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    marked = [number for number, line in enumerate(lines, 1) if line.endswith(f"# marked {way}")]
    assert [found.location.line] == marked


@pytest.mark.parametrize("way", ["rounding", "batch norm", "not at all"])
def test_samples_that_do_not(way: str) -> None:
    assert failing(seeded(Mixed, way)) == []


class Flattened(Parts):
    """Batch and time are one axis to the attention."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.flatten(0, 1)[None] for part in (self.q(x), self.k(x), self.v(x)))
        q, k, v = (part.unflatten(-1, (3, -1)).transpose(1, 2) for part in (q, k, v))
        context = self.weigh(self.scores(q, k)) @ v
        return self.merge(context).view(x.shape)


def test_attention_over_all_samples_and_positions_is_a_warning() -> None:
    (found,) = failing(seeded(Flattened))
    assert (found.code, found.severity) == ("ATN404", Severity.WARNING)
    assert found.found == "attention across samples"


def test_it_comes_before_the_leak_that_it_makes() -> None:
    (found,) = failing(seeded(Flattened), causal=True)
    assert (found.code, found.consequences) == ("ATN404", ("ATN214",))


@pytest.mark.parametrize("style", STYLES)
def test_styles(style: str) -> None:
    assert failing(seeded(STYLES[style]), features(batch=3)) == []


@pytest.mark.parametrize("build", [designs.TimeFirst], ids=["time first"])
def test_axes_in_another_order(build: Callable[[], nn.Module]) -> None:
    assert "ATN404" not in [found.code for found in failing(seeded(build), features(batch=7, time=3))]
    assert failing(seeded(build), features(batch=7, time=3), batch_first=False) == []


def test_one_sample_and_no_batch() -> None:
    assert failing(seeded(Mixed, "whole norm"), features(batch=1)) == []
    assert failing(seeded(Decoder), torch.ones(1, 5, dtype=torch.long)) == []


def marked(way: str) -> list[int]:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith(f"# marked {way}")]


class Picture(nn.Module):
    """Attention among the pixels of each image (batch, 21, height, width); samples may meet on the way."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.body = way, Encoder()

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(2).mT
        if self.way == "roll":
            rows = rows + rows.roll(1, dims=0)  # marked picture
        elif self.way == "frames":
            rows = rows.view(-1, 2, 20, 21).permute(0, 2, 1, 3).flatten(0, 1)  # attention between frames
            return self.body(rows).unflatten(0, (-1, 20)).permute(0, 2, 3, 1).reshape(x.shape)
        return self.body(rows).mT.reshape(x.shape)


def test_images_that_meet() -> None:
    (found,) = failing(seeded(Picture, "roll"), torch.randn(2, 21, 4, 5))
    assert (found.code, [found.location.line]) == ("ATN404", marked("picture"))


@pytest.mark.parametrize("way", ["not at all", "frames"])
@pytest.mark.parametrize("batch", [2, 4])
def test_images_that_do_not_and_frames_that_may(way: str, batch: int) -> None:
    assert failing(seeded(Picture, way), torch.randn(batch, 21, 4, 5)) == []
