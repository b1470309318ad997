"""Long inputs are cut along time, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.probe.shorten import LONG, SAMPLES, SHORT, shortened, with_fewer_samples
from tests.probe.modules import seeded

T, S, B = 128, 96, 2
SHORT_T, SHORT_S, *_ = SHORT


def shapes(*args: Any, **kwargs: Any) -> list[tuple[int, ...]]:
    cut = shortened(args, kwargs)
    assert cut is not None
    return [tuple(value.shape) for value in (*cut[0], *cut[1].values())]


def test_short_inputs_are_left_alone() -> None:
    assert shortened((torch.randn(B, LONG, 64),), {"mask": torch.ones(B, LONG, dtype=torch.bool)}) is None


def test_ids_and_masks_are_cut_along_time() -> None:
    ids, mask = torch.zeros(B, T, dtype=torch.long), torch.ones(B, 1, T, T, dtype=torch.bool)
    assert shapes(ids, mask=mask) == [(B, SHORT_T), (B, 1, SHORT_T, SHORT_T)]


def test_features_keep_their_width_even_where_it_equals_the_length() -> None:
    assert shapes(torch.randn(B, T, T)) == [(B, SHORT_T, T)]


@pytest.mark.parametrize("shape", [(T, B, 64), (B, T, 64)])
def test_either_layout_is_cut(shape: tuple[int, ...]) -> None:
    assert shapes(torch.randn(shape)) == [tuple(SHORT_T if size == T else size for size in shape)]


def test_different_lengths_stay_different() -> None:
    memory_mask = torch.zeros(B, S, dtype=torch.bool)
    assert shapes(torch.randn(B, T, 64), torch.randn(B, S, 64), mask=memory_mask) == [
        (B, SHORT_T, 64),
        (B, SHORT_S, 64),
        (B, SHORT_S),
    ]


def test_what_was_one_tensor_stays_one_and_other_values_pass() -> None:
    x = torch.randn(B, T, 64)
    cut = shortened((x, x, 0.5), {"value": x})
    assert cut is not None
    (first, second, number), kwargs = cut
    assert first is second is kwargs["value"]
    assert number == 0.5
    assert torch.equal(first, x[:, :SHORT_T])


def test_images_are_left_alone() -> None:
    assert shortened((torch.randn(B, 3, 224, 224),), {}) is None


def test_of_many_windows_a_few_are_taken_and_nothing_else_is_cut() -> None:
    windows, mask = torch.randn(256, 49, 32), torch.zeros(256, 1, 49, 49)
    found = with_fewer_samples((windows,), {"mask": mask})
    assert found is not None
    (few,), kwargs = found
    assert torch.equal(few, windows[:SAMPLES])
    assert kwargs["mask"].shape == (SAMPLES, 1, 49, 49)


@pytest.mark.parametrize("shape", [(B, T, 64), (T, T, 64), (T, 64)])
def test_of_few_samples_or_where_time_is_as_long_none_is_left_out(shape: tuple[int, ...]) -> None:
    assert with_fewer_samples((torch.randn(shape),), {}) is None


class Window(nn.Module):
    """Attention of windows of 5 × 5 with a learned bias, which takes no other length."""

    def __init__(self, least: int = 1) -> None:
        super().__init__()
        self.qkv, self.bias = nn.Linear(14, 42), nn.Parameter(torch.randn(2, 25, 25))
        self.least = least

    def forward(self, x: Tensor) -> Tensor:
        if len(x) < self.least:
            raise ValueError("too few windows")
        q, k, v = self.qkv(x).view(len(x), 25, 3, 2, 7).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT * 7**-0.5 + self.bias).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize(("least", "taken"), [(1, SAMPLES), (6, 36)])
def test_a_check_takes_few_windows_where_the_module_does(least: int, taken: int) -> None:
    module = seeded(Window, least)
    report = attn_guard.check(module, torch.randn(36, 25, 14))
    assert [site.scores.shape for site in report.sites if site.scores] == [(2 * taken, 25, 25)]
