"""Relative biases on the scores: slopes over the distance and tables that an index reads, right and wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from tests.probe.modules import seeded

HEADS, WIDTH = 2, 22
Index = Callable[[int], Tensor]


def offsets(time: int) -> Tensor:
    """[query, key]: j - i."""
    return torch.arange(time) - torch.arange(time)[:, None]


class Biased(nn.Module):
    """Self-attention with a bias on the scores, causal on request."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.qkv, self.out, self.causal_on_request = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), causal

    def bias(self, time: int) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.mT * 11**-0.5 + self.bias(x.shape[1])
        if self.causal_on_request:
            scores = scores.masked_fill(offsets(x.shape[1]) > 0, -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Sloped(Biased):
    def __init__(self, of: Callable[[Tensor], Tensor], causal: bool = False) -> None:
        super().__init__(causal)
        self.of = of

    def bias(self, time: int) -> Tensor:
        return torch.tensor([0.25, 0.0625])[:, None, None] * self.of(offsets(time).float())


class Looked(Biased):
    """A learned table of (entries, heads), read by an index (time, time)."""

    def __init__(self, index: Index) -> None:
        super().__init__()
        self.table, self.index = nn.Parameter(torch.randn(999, HEADS)), index

    def bias(self, time: int) -> Tensor:
        return self.table[self.index(time).flatten()].view(time, time, HEADS).permute(2, 0, 1)


class Embedded(Looked):
    """The same by an embedding."""

    def bias(self, time: int) -> Tensor:
        return nn.functional.embedding(self.index(time), self.table).permute(2, 0, 1)


def grid_offsets(rows: int, columns: int) -> Tensor:
    """(rows · columns, rows · columns, 2), each from 0."""
    places = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))
    return places[:, None] - places[None] + torch.tensor([rows - 1, columns - 1])


def window(time: int) -> Tensor:
    """Swin, a window of two columns."""
    down, right = grid_offsets(time // 2, 2).unbind(-1)
    return down * 3 + right


def narrow_stride(time: int) -> Tensor:
    """Three columns need a stride of five."""
    down, right = grid_offsets(time // 3, 3).unbind(-1)
    return down * 4 + right


def with_a_class_token(time: int) -> Tensor:
    index = torch.full((time, time), 901)
    index[0, 1:], index[1:, 0] = 902, 903
    index[1:, 1:] = window(time - 1)
    return index


def lengths_only(time: int) -> Tensor:
    """LeViT: the sizes of both steps, whatever their signs."""
    down, right = grid_offsets(time // 2, 2).unbind(-1)
    return (down - time // 2 + 1).abs() * 2 + (right - 1).abs()


def buckets(time: int) -> Tensor:
    """T5: near offsets have entries of their own, far ones share them."""
    near = offsets(time).abs()
    far = 2 + (near.clamp(min=1).float() / 2).log() / math.log(4)
    return torch.where(near < 2, near, far.long()) + 20 * (offsets(time) > 0)


def pairs(time: int) -> Tensor:
    return torch.arange(time * time).view(time, time)


def row_sums(time: int) -> Tensor:
    """i + j in place of i - j."""
    return torch.arange(time) + torch.arange(time)[:, None]


def found_in(module: nn.Module, time: int) -> list[str]:
    x = torch.randn(3, time, WIDTH, generator=torch.Generator().manual_seed(0))
    report = attn_guard.check(module, (x,), select=["ATN705"])
    return [finding.found for finding in report]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "of", [lambda d: d, lambda d: -d.abs(), lambda d: d[-1:], lambda d: -(d.abs() + 1).log(), torch.zeros_like]
)
def test_slopes_that_fall(of: Callable[[Tensor], Tensor], causal: bool) -> None:
    if of(torch.ones(2, 2)).shape == (1, 2):
        of = lambda d: torch.arange(d.shape[-1]).float().expand_as(d)  # noqa: E731 Bloom: slope · j
    assert found_in(seeded(Sloped, of, causal), 7) == []


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("of", [lambda d: -d, lambda d: d.abs(), lambda d: 3 - d])
def test_slopes_that_rise(of: Callable[[Tensor], Tensor], causal: bool) -> None:
    assert found_in(seeded(Sloped, of, causal), 7) == ["a bias that grows with it, in every head"]


@pytest.mark.parametrize("build", [Looked, Embedded])
@pytest.mark.parametrize(
    ("index", "time"),
    [
        (lambda time: offsets(time) + time, 7),
        (buckets, 13),
        (window, 8),
        (window, 12),
        (with_a_class_token, 9),
        (lengths_only, 12),
        (pairs, 7),
    ],
)
def test_an_index_of_offsets(build: Callable[[Index], nn.Module], index: Index, time: int) -> None:
    assert found_in(seeded(build, index), time) == []


@pytest.mark.parametrize("build", [Looked, Embedded])
def test_an_index_of_something_else(build: Callable[[Index], nn.Module]) -> None:
    assert found_in(seeded(build, row_sums), 7) == ["cells of one offset read different entries"]


def test_offsets_that_share_an_entry() -> None:
    (found,) = found_in(seeded(Looked, narrow_stride), 12)
    assert "share one entry" in found


def test_a_bias_for_each_pair_of_positions() -> None:
    class Absolute(Biased):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(HEADS, 13, 13))

        def bias(self, time: int) -> Tensor:
            return self.table[:, :time, :time]

    assert found_in(seeded(Absolute), 7) == []


def on_a_grid(of: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A bias by the distance on a grid of two columns in place of that on a line."""
    return lambda d: -of((grid_offsets(len(d) // 2, 2) - torch.tensor([len(d) // 2 - 1, 1])).float().pow(2).sum(-1))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "of",
    [
        lambda d: (torch.arange(len(d)) * torch.arange(len(d))[:, None]).float(),  # i · j
        lambda d: d.clamp(min=-2) * (torch.arange(len(d)) % 2),
        lambda d: d * torch.arange(1, len(d) + 1)[:, None],
    ],
)
def test_slopes_over_something_else(of: Callable[[Tensor], Tensor], causal: bool) -> None:
    assert found_in(seeded(Sloped, of, causal), 8) == ["several, multiplied by a slope in each head"]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("of", [on_a_grid(torch.sqrt), on_a_grid(torch.abs), lambda d: -(d.abs() > 3).float()])
def test_slopes_over_distances_of_other_kinds(of: Callable[[Tensor], Tensor], causal: bool) -> None:
    assert found_in(seeded(Sloped, of, causal), 8) == []


def test_pairs_in_no_proportion_may_be_anything() -> None:
    class Measured(Biased):
        """Distances that are known from elsewhere, and of each head its own."""

        def bias(self, time: int) -> Tensor:
            return torch.randn(HEADS, time, time, generator=torch.Generator().manual_seed(0))

    assert found_in(seeded(Measured), 8) == []


def in_a_row(time: int) -> Tensor:
    """Steps down times the columns, where it should be times the offsets that there are to the right: a line."""
    down, right = grid_offsets(time // 3, 3).unbind(-1)
    return down * 3 + right


@pytest.mark.parametrize(("entries", "wrong"), [(25, True), (2 * 9 - 1, False), (49, False), (101, False)])
def test_a_table_for_a_grid_that_is_read_along_a_line(entries: int, wrong: bool) -> None:
    class Sized(Looked):
        def __init__(self) -> None:
            super().__init__(in_a_row)
            self.table = nn.Parameter(torch.randn(entries, HEADS))

    assert bool(found_in(seeded(Sized), 9)) is wrong


class Early(Sloped):
    """The slopes are added before the scale."""

    learned, late = False, False

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        bias = self.bias(x.shape[1])
        scores = q @ k.mT * 11**-0.5 + bias if self.late else (q @ k.mT + bias) * 11**-0.5
        scores = scores.masked_fill(offsets(x.shape[1]) > 0, -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class EarlyLearned(Early):
    def __init__(self, of: Callable[[Tensor], Tensor]) -> None:
        super().__init__(of)
        self.slopes = nn.Parameter(torch.tensor([0.25, 0.0625]))

    def bias(self, time: int) -> Tensor:
        return self.slopes[:, None, None] * self.of(offsets(time).float())


@pytest.mark.parametrize("build", [Early, EarlyLearned])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("straight", [False, True])
def test_slopes_that_the_scale_makes_smaller(build: type[Early], late: bool, straight: bool) -> None:
    """Learned ones find their size, and a bias of another form may be meant for the sum."""
    module = seeded(build, (lambda steps: steps) if straight else lambda steps: -(steps.abs() > 2).float() - 1)
    module.late = late  # type: ignore[assignment]
    found = [finding.code for finding in attn_guard.check(module, causal=True, preview=True) if finding.fails]
    assert found == (["ATN223"] if build is Early and straight and not late else [])
