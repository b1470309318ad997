"""Designs that are unusual and right: the probe says nothing about them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import attn_guard
from attn_guard.findings import Report, Severity
from tests.probe import silent_modules as designs
from tests.probe.modules import CAUSAL_STYLES, STYLES, D, Decoder, features, seeded

Build = Callable[[], nn.Module]


def named(builds: list[Build]) -> list[object]:
    return [pytest.param(build, id=getattr(build, "__name__", "")) for build in builds]


def assert_silent(report: Report) -> None:
    assert list(report) == [], str(report)


@pytest.mark.parametrize("style", STYLES)
def test_every_style_without_a_promise(style: str) -> None:
    report = attn_guard.check(seeded(STYLES[style]))
    assert_silent(report)
    assert len(report.sites) == 1


@pytest.mark.parametrize("style", CAUSAL_STYLES)
def test_every_style_that_promises_to_be_causal(style: str) -> None:
    report = attn_guard.check(seeded(CAUSAL_STYLES[style]), causal=True)
    assert_silent(report)
    assert [site.causal for site in report.sites] == [True]


@pytest.mark.parametrize("build", named(designs.CAUSAL))
def test_causal_design(build: Build) -> None:
    assert_silent(attn_guard.check(seeded(build), causal=True))


@pytest.mark.slow
@pytest.mark.parametrize("build", named(designs.CAUSAL))
def test_causal_design_without_a_promise(build: Build) -> None:
    assert_silent(attn_guard.check(seeded(build)))


@pytest.mark.slow
@pytest.mark.parametrize("time", [3, 13], ids=["as many as heads and samples", "a prime"])
@pytest.mark.parametrize("build", named(designs.CAUSAL))
def test_causal_design_on_a_length_of_the_users_choice(build: Build, time: int) -> None:
    assert_silent(attn_guard.check(seeded(build), features(batch=3, time=time), causal=True))


def test_a_stated_scale_that_happens_to_be_the_root_of_the_length() -> None:
    assert_silent(attn_guard.check(seeded(designs.StatedScalar), features(time=13), causal=True))


@pytest.mark.parametrize("build", named(designs.OPEN))
def test_design_without_a_mask(build: Build) -> None:
    module = seeded(build)
    width = next(child.in_features for child in module.modules() if isinstance(child, nn.Linear))
    assert_silent(attn_guard.check(module))
    assert_silent(attn_guard.check(module, features(batch=2, time=6, width=width)))


def test_projection_along_time() -> None:
    assert_silent(attn_guard.check(seeded(designs.Linformer), features(time=7)))


def test_time_before_batch() -> None:
    assert_silent(attn_guard.check(seeded(designs.TimeFirst), features(batch=11, time=2), batch_first=False))
    assert_silent(attn_guard.check(seeded(designs.TimeFirst), batch_first=False))


@pytest.mark.parametrize("build", [designs.PixelAttention, designs.ImageHeads], ids=lambda build: str(build.__name__))
@pytest.mark.parametrize("size", [(3, 5), (1, 7)])
def test_attention_over_the_pixels_of_an_image(build: Build, size: tuple[int, int]) -> None:
    image = torch.randn(2, D, *size, generator=torch.Generator().manual_seed(0))
    report = attn_guard.check(seeded(build), image)
    assert_silent(report)
    assert len(report.sites) == 1


@pytest.mark.parametrize("shift", [0, 1])
def test_shifted_windows_are_a_remark_at_most(shift: int) -> None:
    """-100 hides pixels well enough for the scores of a trained Swin; nothing fails."""
    image = torch.randn(2, 4, 6, D, generator=torch.Generator().manual_seed(0))
    report = attn_guard.check(seeded(designs.SwinWindows, shift), image)
    assert report.ok
    assert {(finding.code, finding.severity) for finding in report} <= {("ATN203", Severity.INFO)}


@pytest.mark.parametrize("build", [designs.CleanedRows, designs.OpenedRows], ids=lambda build: str(build.__name__))
@pytest.mark.parametrize("causal", [True, None])
def test_rows_without_any_key(build: Build, causal: bool | None) -> None:
    report = attn_guard.check(seeded(build), causal=causal)
    assert_silent(report)
    assert len(report.sites) == 1


@pytest.mark.parametrize(
    ("build", "masks"),
    [
        (designs.PaddedSdpa, {"keep": "attend"}),
        (designs.PaddedEncoderLayer, {"key_padding_mask": "ignore"}),
        (designs.PaddedEncoderLayer, None),
        (designs.ZeroedPads, {"key_padding_mask": "ignore"}),
        (designs.AdditiveMask, {"bias": "additive"}),
    ],
)
def test_padding_kept_out(build: Build, masks: dict[str, str] | None) -> None:
    assert_silent(attn_guard.check(seeded(build), masks=masks))  # type: ignore[arg-type]


def test_a_whole_decoder() -> None:
    model = seeded(Decoder, layers=3)
    for causal in (True, None):
        report = attn_guard.check(model, causal=causal)
        assert_silent(report)
        assert [site.name for site in report.sites] == [f"blocks.{layer}.attn" for layer in range(3)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("style", ["fused qkv", "sdpa is_causal", "built-in"])
def test_other_dtypes(style: str, dtype: torch.dtype) -> None:
    report = attn_guard.check(seeded(CAUSAL_STYLES[style]).to(dtype), causal=True)
    assert_silent(report)
    assert [site.causal for site in report.sites] == [True]


class KeyTimesQuery(nn.Module):
    """Scores as key · queryᵀ, with the softmax down the columns; causal all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(14, 42)
        self.out = nn.Linear(14, 14)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, _ = x.shape
        query, key, value = self.qkv(x).view(batch, time, 3, 2, 7).permute(2, 0, 3, 1, 4)
        scores = key @ query.mT * 7**-0.5
        future = torch.ones(time, time, dtype=torch.bool).tril(-1)
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-2)
        return self.out((weights.mT @ value).transpose(1, 2).reshape(batch, time, 14))


def test_scores_written_as_key_times_query() -> None:
    assert_silent(attn_guard.check(KeyTimesQuery(), causal=True))
    x = torch.randn(2, 5, 14)
    assert_silent(attn_guard.check(KeyTimesQuery(), (x,), causal=True))
