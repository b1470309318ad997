"""Reshapes where axes should be swapped, and the many that only look like it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import attn_guard
from attn_guard.probe.reshapes import reorders
from tests.probe.modules import STYLES, BuiltIn, D, H, features, seeded
from tests.probe.silent_modules import ImageHeads, PixelAttention, SwinWindows


def found(module: nn.Module, *args: Tensor) -> list[tuple[str, tuple[str, ...]]]:
    report = attn_guard.check(module, args or None, preview=True)
    return [(finding.code, finding.consequences) for finding in report if finding.fails]


def codes(module: nn.Module, *args: Tensor) -> list[str]:
    return [code for code, _ in found(module, *args)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((2, 21, 24), (2, 24, 21), True),  # channels and pixels
        ((2, 21, 4, 6), (2, 24, 21), True),
        ((2, 5, 7, 21), (14, 5, 21), True),  # frames of each pixel
        ((14, 5, 21), (2, 5, 7, 21), True),
        ((2, 5, 7, 21), (14, 5, 3, 7), True),  # and their heads at once
        ((2, 5, 21), (5, 2, 21), True),  # batch and time
        ((2, 5, 21), (2, 21, 5), True),
        ((2, 5, 7, 21), (10, 7, 21), False),  # neighbours
        ((10, 7, 21), (2, 5, 7, 21), False),
        ((2, 5, 21), (2, 5, 3, 7), False),  # heads
        ((2, 5, 21), (2, 3, 5, 7), False),  # heads, wrongly: another mistake
        ((2, 3, 5, 7), (2, 5, 21), False),
        ((2, 1, 5, 21), (2, 5, 1, 21), False),
        ((2, 5, 21), (2, 105), False),
        ((2, 5, 21), (5, 6, 7), False),
        ((5, 5, 21), (5, 5, 21), False),
        ((), (), False),
    ],
)
def test_sizes_in_another_order(before: tuple[int, ...], after: tuple[int, ...], expected: bool) -> None:
    assert reorders(before, after) is expected


class Image(nn.Module):
    """(batch, D, height, width) → pixels → attention → image."""

    def __init__(self, into: str, back: str) -> None:
        super().__init__()
        self.into, self.back, self.attention = into, back, BuiltIn()

    def forward(self, image: Tensor) -> Tensor:
        batch, channels, height, width = image.shape
        right = self.into == "right"
        pixels = image.flatten(2).transpose(1, 2) if right else image.reshape(batch, height * width, channels)
        x = self.attention(pixels)
        return (x.mT if self.back == "right" else x).reshape(image.shape)


@pytest.mark.parametrize("into", ["right", "at once"])
@pytest.mark.parametrize("back", ["right", "at once"])
def test_channels_and_pixels(into: str, back: str) -> None:
    image = torch.randn(2, D, 4, 6)
    assert set(codes(seeded(Image, into, back), image)) == ({"ATN310"} if into != "right" or back != "right" else set())


class ConvolvedImage(nn.Module):
    """1×1 convolutions whose result is read as (batch, heads, pixels, features)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Conv2d(D, D, 1) for _ in range(3))

    def forward(self, image: Tensor) -> Tensor:
        batch, channels, height, width = image.shape
        shape = (batch, self.heads, height * width, channels // self.heads)
        q, k, v = (part(image).view(shape) for part in (self.q, self.k, self.v))
        weights = (q @ k.mT * (channels // self.heads) ** -0.5).softmax(-1)
        return (weights @ v).mT.reshape(image.shape)


def test_a_convolution_read_as_rows_of_pixels() -> None:
    """With heads it is a wrong split of heads."""
    image = torch.randn(2, D, 4, 6)
    assert found(seeded(ConvolvedImage, 1), image) == [("ATN310", ("ATN303",))]
    assert codes(seeded(ConvolvedImage, H), image) == ["ATN303"]


class Video(nn.Module):
    """(batch, frames, pixels, D), attention along the frames of each pixel."""

    def __init__(self, into: bool = True, back: bool = True, norm: bool = False) -> None:
        super().__init__()
        self.into, self.back, self.attention = into, back, STYLES["fused qkv"]()
        self.norm = nn.LayerNorm(D) if norm else nn.Identity()

    def forward(self, video: Tensor) -> Tensor:
        batch, frames, pixels, width = video.shape
        x = (video.transpose(1, 2) if self.into else video).reshape(batch * pixels, frames, width)
        x = self.attention(self.norm(x))
        if self.back:
            return video + x.view(batch, pixels, frames, width).transpose(1, 2)
        return video + x.view(batch, frames, pixels, width)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("into", "back"), [(True, True), (False, True), (True, False), (False, False)])
def test_frames_and_pixels(into: bool, back: bool, norm: bool) -> None:
    assert codes(seeded(Video, into, back, norm), torch.randn(2, 5, 7, D)) == ["ATN310"] * (2 - into - back)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_right_videos_of_any_size(batch: int, frames: int, pixels: int) -> None:
    assert codes(seeded(Video), torch.randn(batch, frames, pixels, D)) == []


class ViewedAsTimeFirst(nn.Module):
    """Batch and time are swapped by a view for a layer that wants time first."""

    def __init__(self, right: bool) -> None:
        super().__init__()
        self.right, self.attention = right, nn.MultiheadAttention(D, H)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        x = x.transpose(0, 1) if self.right else x.view(time, batch, width)
        x = self.attention(x, x, x, need_weights=False)[0]
        return x.transpose(0, 1) if self.right else x.view(batch, time, width)


def test_batch_and_time() -> None:
    assert set(codes(seeded(ViewedAsTimeFirst, False))) == {"ATN310"}
    assert codes(seeded(ViewedAsTimeFirst, True)) == []


class TimeFirst(nn.Module):
    """(time, batch, D) with heads folded into the batch; sizes coincide where batch is the width of a head."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        time, batch, width = x.shape
        q, k, v = (part(x).view(time, batch * H, width // H).transpose(0, 1) for part in (self.q, self.k, self.v))
        context = ((q @ k.mT) * (width // H) ** -0.5).softmax(-1) @ v
        return self.out(context.transpose(0, 1).reshape(time, batch, width))


@pytest.mark.parametrize(("time", "batch"), [(5, 7), (7, 5), (3, 7), (7, 7), (21, 3)])
def test_sizes_that_coincide(time: int, batch: int) -> None:
    report = attn_guard.check(seeded(TimeFirst), torch.randn(time, batch, D), batch_first=False, preview=True)
    assert list(report) == []


class RelativeShift(nn.Module):
    """Scores by distance, shifted by reading (Tq, Tk + 1) as (Tk + 1, Tq) (Transformer-XL)."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.distance = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, _ = x.shape
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        r = self.distance(torch.arange(time * D).view(time, D) / 99.0).unflatten(-1, (H, -1)).transpose(0, 1)
        shifted = nn.functional.pad(q @ r.mT, (1, 0)).view(batch, H, time + 1, time)[:, :, 1:]
        return self.out((((q @ k.mT + shifted) * 7**-0.5).softmax(-1) @ v).transpose(1, 2).flatten(2))


def test_a_relative_shift_of_scores() -> None:
    model = nn.Sequential(seeded(RelativeShift), seeded(RelativeShift))
    assert "ATN310" not in codes(model, features())


@pytest.mark.parametrize("build", [PixelAttention, ImageHeads])
@pytest.mark.parametrize("size", [(D, 1), (3, 7), (1, 1), (2, 2)])
def test_images_whose_sizes_coincide(build: Callable[[], nn.Module], size: tuple[int, int]) -> None:
    for batch in (1, 2, prod(size) % 5 + 1):
        assert codes(seeded(build), torch.randn(batch, D, *size)) == []


@pytest.mark.parametrize("size", [(2, 2), (4, 4), (4, 6)])
def test_windows(size: tuple[int, int]) -> None:
    assert codes(seeded(SwinWindows), torch.randn(4, *size, D)) == []


class BlockThenGrid(nn.Module):
    """Attention within windows, then between pixels far apart: an axis is merged and cut at other places (MaxViT)."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.grid = STYLES["fused qkv"](), STYLES["fused qkv"]()

    def forward(self, image: Tensor) -> Tensor:
        batch, side, _, width = image.shape
        x = image.view(batch, side // 3, 3, side // 3, 3, width).transpose(2, 3)
        x = self.block(x.reshape(-1, 9, width)).view(x.shape).transpose(2, 3)
        x = x.reshape(batch, side, side, width).view(batch, 3, side // 3, 3, side // 3, width).permute(0, 2, 4, 1, 3, 5)
        x = self.grid(x.reshape(-1, 9, width)).view(x.shape).permute(0, 3, 1, 4, 2, 5)
        return x.reshape(image.shape)


@pytest.mark.parametrize("side", [6, 9, 12])
def test_blocks_then_grids(side: int) -> None:
    assert codes(seeded(BlockThenGrid), torch.randn(2, side, side, D)) == []


class Windows(nn.Module):
    """Attention in square windows of an image (batch, height, width, D), or of its pixels in a row; a permute may be
    forgotten on the way in or back."""

    def __init__(self, into: bool = True, back: bool = True, side: int = 3, flat: bool = False) -> None:
        super().__init__()
        self.into, self.back, self.side, self.flat, self.attention = into, back, side, flat, BuiltIn()

    def forward(self, x: Tensor) -> Tensor:
        side, shape = self.side, x.shape
        image = x.view(len(x), 6, -1, D) if self.flat else x
        rows, columns = image.shape[1] // side, image.shape[2] // side
        cut = image.view(-1, rows, side, columns, side, D)
        cut = cut.permute(0, 1, 3, 2, 4, 5) if self.into else cut
        y = self.attention(cut.reshape(-1, side * side, D)).view(-1, rows, columns, side, side, D)
        return (y.permute(0, 1, 3, 2, 4, 5) if self.back else y).reshape(shape)


@pytest.mark.parametrize("size", [(2, 6, 9, D), (1, 6, 12, D), (2, 54, D)])
@pytest.mark.parametrize(("into", "back"), [(False, True), (True, False)])
def test_a_permute_forgotten_on_one_way(into: bool, back: bool, size: tuple[int, ...]) -> None:
    assert codes(seeded(Windows, into, back, flat=len(size) == 3), torch.randn(*size)) == ["ATN310"]


@pytest.mark.parametrize("size", [(2, 6, 9, D), (1, 6, 12, D), (2, 54, D)])
def test_windows_that_are_put_back(size: tuple[int, ...]) -> None:
    assert codes(seeded(Windows, flat=len(size) == 3), torch.randn(*size)) == []
