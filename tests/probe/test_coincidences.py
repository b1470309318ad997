"""Sizes that coincide: batch, time, memory, heads and the width of a head in every combination, over right modules.

A wrong axis hides behind equal sizes, and a right one must not be taken for a wrong one because of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import attn_guard
from tests.probe import silent_modules as designs
from tests.probe.modules import CAUSAL_STYLES, HEAD_DIM, STYLES, CrossAttention, D, FusedQkv, H, Sdpa, features, seeded

# One, a size of its own, the heads, the width of a head.
SIZES = st.sampled_from([1, 2, H, 5, HEAD_DIM])
few = settings(max_examples=15, deadline=None, derandomize=True)


def assert_silent(module: nn.Module, *args: Tensor, causal: bool | None = None, keys: int = 2) -> None:
    """Nothing is said, and attention is seen. (Of a single key, an einsum is a product of numbers and no matmul.)"""
    report = attn_guard.check(module, args, causal=causal, preview=True)
    assert [finding.code for finding in report if finding.code.startswith("ATN3") or finding.fails] == [], str(report)
    assert report.sites or keys == 1


@few
@given(st.sampled_from(sorted(STYLES)), SIZES, SIZES)
def test_open_styles(style: str, batch: int, time: int) -> None:
    assert_silent(seeded(STYLES[style]), features(batch, time), keys=time)


@few
@given(st.sampled_from(sorted(CAUSAL_STYLES)), SIZES, SIZES)
def test_causal_styles(style: str, batch: int, time: int) -> None:
    assert_silent(seeded(CAUSAL_STYLES[style]), features(batch, time), causal=True, keys=time)


@few
@given(SIZES, SIZES, SIZES)
def test_cross_attention(batch: int, time: int, memory: int) -> None:
    assert_silent(seeded(CrossAttention), features(batch, time), features(batch, memory, seed=1))


@few
@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 7]), st.booleans())
def test_grouped_heads(key_heads: int, batch: int, time: int, causal: bool) -> None:
    module = seeded(Sdpa, "is_causal" if causal else "none", key_heads=key_heads, width=28, heads=4)
    assert_silent(module, features(batch, time, 28), causal=causal or None)


@few
@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]))
def test_one_head_and_square_heads(heads: int, batch: int, time: int) -> None:
    """Width 8: as many heads as columns of a head, or one head alone."""
    assert_silent(seeded(FusedQkv, 8, heads), features(batch, time, 8))


@few
@given(
    st.sampled_from([designs.PixelAttention, designs.ImageHeads]),
    SIZES,
    st.sampled_from([1, 2, H, HEAD_DIM]),
    st.sampled_from([1, 2, H, HEAD_DIM]),
)
def test_images(build: Callable[[], nn.Module], batch: int, height: int, width: int) -> None:
    assert_silent(seeded(build), torch.randn(batch, D, height, width), keys=height * width)


@few
@given(st.sampled_from([0, 1]), st.sampled_from([1, 2, 4]), st.sampled_from([2, 4, 6]), st.sampled_from([2, 4, 6]))
def test_windows(shift: int, batch: int, height: int, width: int) -> None:
    assert_silent(seeded(designs.SwinWindows, shift), torch.randn(batch, height, width, D))


@few
@given(st.sampled_from([designs.ClassToken, designs.Perceiver, designs.PerceiverConcat]), SIZES, SIZES)
def test_other_queries(build: Callable[[], nn.Module], batch: int, time: int) -> None:
    assert_silent(seeded(build), features(batch, time))


class FourAxes(nn.Module):
    """Takes (batch, H, time, HEAD_DIM) ready-made, or with time before the heads and transposed inside."""

    def __init__(self, heads_first: bool) -> None:
        super().__init__()
        self.heads_first = heads_first

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not self.heads_first:
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v


@few
@given(st.booleans(), SIZES, SIZES)
def test_four_axes(heads_first: bool, batch: int, time: int) -> None:
    shape = (batch, H, time, HEAD_DIM) if heads_first else (batch, time, H, HEAD_DIM)
    assert_silent(FourAxes(heads_first), *(torch.randn(shape) for _ in range(3)))


@few
@given(st.sampled_from([1, 2, H, HEAD_DIM]))
def test_no_batch(time: int) -> None:
    assert_silent(nn.MultiheadAttention(D, H).eval(), *[features(1, time)[0]] * 3)
