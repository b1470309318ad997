"""Rotary positions in every layout, right and wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.probe.rotary import Rotary
from tests.probe.modules import seeded

HEADS, HEAD_DIM = 3, 10
WIDTH = HEADS * HEAD_DIM
ROTARY = ["ATN702", "ATN706"]
Turning = Callable[[Tensor], Tensor]


def angles(time: int, pairs: int = HEAD_DIM // 2) -> Tensor:
    return torch.arange(time)[:, None] * 10000 ** (-torch.arange(pairs) / pairs)


def rotate_half(x: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return torch.cat((-right, left), dim=-1)


def rotate_pairs(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def halves(x: Tensor) -> Tensor:
    angle = angles(x.shape[-2]).repeat(1, 2)
    return x * angle.cos() + rotate_half(x) * angle.sin()


def pairs(x: Tensor) -> Tensor:
    angle = angles(x.shape[-2]).repeat_interleave(2, dim=-1)
    return x * angle.cos() + rotate_pairs(x) * angle.sin()


def complex_pairs(x: Tensor) -> Tensor:
    number = torch.view_as_complex(torch.unflatten(x, -1, (-1, 2)).contiguous())
    angle = angles(x.shape[-2])
    return torch.view_as_real(number * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


def partial(x: Tensor) -> Tensor:
    angle = angles(x.shape[-2], 2).repeat(1, 2)
    turned, rest = x[..., :4], x[..., 4:]
    return torch.cat((turned * angle.cos() + rotate_half(turned) * angle.sin(), rest), dim=-1)


def longer(x: Tensor) -> Tensor:
    """YaRN: slower angles, and a factor on cosine and sine."""
    angle = (angles(x.shape[-2]) * torch.linspace(1, 0.25, HEAD_DIM // 2)).repeat(1, 2)
    return x * (angle.cos() * 1.1) + rotate_half(x) * (angle.sin() * 1.1)


def of_images(x: Tensor) -> Tensor:
    """The first half turns by the row of a grid of two columns, the second by the column."""
    place = torch.arange(x.shape[-2])
    rates = 100 ** (-torch.arange(HEAD_DIM // 2) / HEAD_DIM)
    angle = torch.stack((place // 2, place % 2))[torch.arange(HEAD_DIM // 2) % 2].T * rates
    angle = angle.repeat(1, 2)
    return x * angle.cos() + rotate_half(x) * angle.sin()


def decaying(x: Tensor) -> Tensor:
    """xPos: cosine and sine shrink with the position."""
    angle = angles(x.shape[-2]).repeat(1, 2)
    shrunk = 0.9 ** torch.arange(x.shape[-2])[:, None]
    return x * (angle.cos() * shrunk) + rotate_half(x) * (angle.sin() * shrunk)


def nothing(x: Tensor) -> Tensor:
    return x


def mixed_halves(x: Tensor) -> Tensor:
    angle = angles(x.shape[-2]).repeat_interleave(2, dim=-1)
    return x * angle.cos() + rotate_half(x) * angle.sin()


def mixed_pairs(x: Tensor) -> Tensor:
    angle = angles(x.shape[-2]).repeat(1, 2)
    return x * angle.cos() + rotate_pairs(x) * angle.sin()


def across_heads(x: Tensor) -> Tensor:
    return halves(x.transpose(1, 2)).transpose(1, 2)


def across_heads_complex(x: Tensor) -> Tensor:
    return complex_pairs(x.transpose(1, 2)).transpose(1, 2)


def across_heads_bfloat16(x: Tensor) -> Tensor:
    x = x.transpose(1, 2)
    angle = angles(x.shape[-2]).repeat(1, 2)
    return (x * angle.cos().bfloat16() + rotate_half(x) * angle.sin().bfloat16()).transpose(1, 2)


def across_the_batch(x: Tensor) -> Tensor:
    return halves(x.transpose(0, 2)).transpose(0, 2)


class Attention(nn.Module):
    def __init__(self, query: Turning, key: Turning | None = None, value: Turning = nothing) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.query, self.key, self.value = query, key or query, value

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        context = nn.functional.scaled_dot_product_attention(self.query(q), self.key(k), self.value(v))
        return self.out(self.back(context).transpose(1, 2).flatten(2))

    def back(self, context: Tensor) -> Tensor:
        return context


class TurnedBack(Attention):
    """Values are turned forward and contexts back, so that values carry relative positions."""

    def back(self, context: Tensor) -> Tensor:
        angle = -angles(context.shape[-2]).repeat(1, 2)
        return context * angle.cos() + rotate_half(context) * angle.sin()


def rotary_of(module: nn.Module) -> Rotary:
    return attn_guard.xray(module).sites[0].rotary


RIGHT = [halves, pairs, complex_pairs, partial, longer]


@pytest.mark.parametrize("turning", [*RIGHT, of_images, decaying, nothing])
def test_nothing_is_said_of_a_right_layout(turning: Turning) -> None:
    assert list(attn_guard.check(seeded(Attention, turning), select=ROTARY, preview=True)) == []


@pytest.mark.parametrize("turning", RIGHT)
def test_a_right_layout_is_seen_to_be_relative(turning: Turning) -> None:
    rotary = rotary_of(seeded(Attention, turning))
    assert rotary.query is not None
    assert rotary.key is not None
    assert rotary.value is None
    assert rotary.spread_on_diagonals == pytest.approx(0, abs=1e-5)


def test_what_is_not_known_to_be_relative_on_a_line() -> None:
    assert rotary_of(seeded(Attention, of_images)).spread_on_diagonals is None
    assert rotary_of(seeded(Attention, decaying)).query is None
    assert rotary_of(seeded(Attention, nothing)).query is None


@pytest.mark.parametrize("turning", [mixed_halves, mixed_pairs])
def test_mixed_layouts(turning: Turning) -> None:
    (found,) = attn_guard.check(seeded(Attention, turning), preview=True)
    assert found.code == "ATN706"
    assert found.expected == "the same score for the same distance"
    assert list(attn_guard.check(seeded(Attention, turning), select=["ATN7"])) == []


@pytest.mark.parametrize(("query", "key", "named"), [(halves, nothing, "query"), (nothing, pairs, "key")])
def test_only_one_side_is_turned(query: Turning, key: Turning, named: str) -> None:
    (found,) = attn_guard.check(seeded(Attention, query, key), select=ROTARY, preview=True)
    assert (found.code, found.message) == ("ATN706", f"only the {named} is turned by its position")


def test_values_are_turned() -> None:
    (found,) = attn_guard.check(seeded(Attention, halves, halves, halves), select=ROTARY, preview=True)
    assert (found.code, found.message) == ("ATN706", "values are turned by their positions, too")
    assert list(attn_guard.check(seeded(TurnedBack, halves, halves, halves), select=ROTARY, preview=True)) == []


@pytest.mark.parametrize(
    ("turning", "axis"),
    [
        (across_heads, "heads"),
        (across_heads_complex, "heads"),
        (across_heads_bfloat16, "heads"),
        (across_the_batch, "samples of the batch"),
    ],
)
def test_angles_along_another_axis(turning: Turning, axis: str) -> None:
    (found,) = attn_guard.check(seeded(Attention, turning), select=ROTARY)
    assert (found.code, found.found) == ("ATN702", f"angles that differ between {axis} only")


@pytest.mark.parametrize(("batch", "time"), [(5, 5), (3, 3), (1, 5), (5, 3), (4, 2)])
@pytest.mark.parametrize("turning", [halves, complex_pairs, across_heads])
def test_sizes_that_coincide(turning: Turning, batch: int, time: int) -> None:
    x = torch.randn(batch, time, WIDTH, generator=torch.Generator().manual_seed(0))
    report = attn_guard.check(seeded(Attention, turning), (x,), select=ROTARY, preview=True)
    assert set(report.codes) == ({"ATN702"} if turning is across_heads else set())


def test_one_position_says_nothing() -> None:
    x = torch.randn(2, 1, WIDTH, generator=torch.Generator().manual_seed(0))
    assert list(attn_guard.check(seeded(Attention, across_heads), (x,), select=ROTARY, preview=True)) == []


def test_a_table_of_two_by_two_matrices_is_left_alone() -> None:
    def by_matrices(x: Tensor) -> Tensor:
        angle = angles(x.shape[-2])
        turn = torch.stack((angle.cos(), -angle.sin(), angle.sin(), angle.cos()), -1)
        return (x.view(*x.shape[:-1], -1, 1, 2) * turn.view(*angle.shape, 2, 2)).sum(-1).flatten(-2)

    assert list(attn_guard.check(seeded(Attention, by_matrices), select=ROTARY)) == []
