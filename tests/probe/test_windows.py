"""Sliding windows against the width that was declared."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import attn_guard
from tests.probe.modules import CAUSAL_STYLES, D, features, seeded
from tests.probe.silent_modules import Core, Parts, SlidingWindow


def codes(module: nn.Module, *args: Any, **promises: Any) -> list[str]:
    return [found.code for found in attn_guard.check(module, args or None, **promises) if found.fails]


class Window(Core):
    """Sees ``before`` keys before its own and ``after`` behind it, and the first ``sinks`` keys of all."""

    def __init__(self, before: int, after: int = 0, sinks: int = 0) -> None:
        super().__init__()
        self.before, self.behind, self.sinks = before, after, sinks

    def hide(self, scores: Tensor) -> Tensor:
        place = torch.arange(scores.shape[-1])
        distance = place[:, None] - place
        keep = (distance <= self.before) & (distance >= -self.behind) | (place < self.sinks) & (distance >= 0)
        return scores.masked_fill(~keep, -torch.inf)


@settings(max_examples=15, deadline=None)
@given(before=st.integers(1, 7), off=st.sampled_from([-1, 0, 1]))
def test_any_width(before: int, off: int) -> None:
    found = codes(seeded(Window, before), causal=True, window=before + 1 + off)
    assert found == (["ATN218"] if off else [])


@pytest.mark.parametrize(("before", "after", "window", "right"), [(2, 2, 5, True), (2, 2, 4, True), (2, 2, 3, False)])
def test_to_both_sides(before: int, after: int, window: int, right: bool) -> None:
    assert codes(seeded(Window, before, after), window=window) == ([] if right else ["ATN218"])


class Inverted(Window):
    """The window of `Window`, upside down."""

    def hide(self, scores: Tensor) -> Tensor:
        place = torch.arange(scores.shape[-1])
        distance = place[:, None] - place
        return scores.masked_fill((distance <= self.before) & (distance >= -self.behind), -torch.inf)


@pytest.mark.parametrize("promises", [{"window": 3}, {}])
def test_a_window_upside_down(promises: dict[str, int]) -> None:
    assert codes(seeded(Inverted, 2), causal=True, **promises) == ["ATN205"]


def test_far_keys_only_are_meant_where_nothing_is_promised() -> None:
    assert "ATN205" not in codes(seeded(Inverted, 2, 2))


def test_a_hidden_diagonal_is_no_mask_upside_down() -> None:
    assert codes(seeded(Inverted, 0), causal=True) == ["ATN214"]


def test_no_window_at_all() -> None:
    (found,) = attn_guard.check(seeded(Core), causal=True, window=3)
    assert (found.code, found.found) == ("ATN218", "all")
    assert any(2 in row for row in found.leak_map)


@pytest.mark.parametrize("style", CAUSAL_STYLES)
def test_no_window_in_any_style(style: str) -> None:
    found = codes(seeded(CAUSAL_STYLES[style]), causal=True, window=3)
    assert found == ["ATN218"] or style == "multi-query"


def test_sinks_do_not_count() -> None:
    assert codes(seeded(Window, 2, 0, sinks=1), causal=True, window=3) == []
    assert codes(seeded(Window, 3, 0, sinks=1), causal=True, window=3) == ["ATN218"]


def test_layers_with_and_without_a_window() -> None:
    assert codes(nn.Sequential(seeded(SlidingWindow), seeded(Core)), causal=True, window=3) == []
    assert codes(nn.Sequential(seeded(Window, 3), seeded(Core)), causal=True, window=3) == ["ATN218"] * 2


@pytest.mark.parametrize("window", [4, 5, 9])
def test_a_sequence_that_is_too_short_shows_nothing(window: int) -> None:
    assert codes(seeded(Core), features(time=5), causal=True, window=window) == []


def test_a_long_sequence_is_cut_so_that_the_window_still_shows() -> None:
    assert codes(seeded(Window, 19), features(time=64), causal=True, window=20) == []
    assert codes(seeded(Window, 20), features(time=64), causal=True, window=20) == ["ATN218"]


def test_nothing_is_said_without_a_declaration() -> None:
    assert codes(seeded(Window, 3), causal=True) == []


class Blocks(Parts):
    """Unfolds keys into blocks: each query sees the two before it and itself; the start is filled up with zeros."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.masked = masked

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        k, v = (F.pad(part, (0, 0, 2, 0)).unfold(2, 3, 1) for part in (k, v))  # (batch, H, time, HEAD_DIM, 3)
        scores = (q[..., None, :] @ k) * q.shape[-1] ** -0.5
        if self.masked:
            place = torch.arange(x.shape[1])[:, None] + torch.arange(3)
            scores = scores.masked_fill((place < 2)[:, None, :], -torch.inf)
        context = (scores.softmax(-1) @ v.mT).squeeze(-2)
        return self.merge(context)


@pytest.mark.parametrize("masked", [True, False])
def test_what_fills_up_the_border(masked: bool) -> None:
    assert codes(seeded(Blocks, masked), features(time=7), causal=True, window=3) == ([] if masked else ["ATN218"])


def test_the_width_is_declared_by_decorator_too() -> None:
    @attn_guard.contract(causal=True, window=3)
    class Declared(Window):
        pass

    assert codes(seeded(Declared, 2)) == []
    assert codes(seeded(Declared, 3)) == ["ATN218"]
    assert D % 3 == 0
