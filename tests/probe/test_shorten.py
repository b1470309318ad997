"""Long inputs are cut along time, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attn_guard.probe.shorten import LONG, SHORT, shortened

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
