"""Query heads and the heads of keys that they meet."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.probe.grouping import BLOCKS, TILES, Grouping
from tests.probe.modules import Sdpa, features, seeded
from tests.probe.silent_modules import GroupedFolded

HEADS, KEY_HEADS, HEAD_DIM = 6, 2, 7
WIDTH = HEADS * HEAD_DIM
Order = Literal["repeat", "interleave"]


class Grouped(nn.Module):
    """Six query heads, two heads of keys."""

    def __init__(self, order: Order, view: str = "", rotary: bool = False) -> None:
        super().__init__()
        self.order, self.view, self.rotary = order, view, rotary
        self.q, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.k, self.v = (nn.Linear(WIDTH, KEY_HEADS * HEAD_DIM) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x)
        if self.view:
            shape = (KEY_HEADS, 3) if self.view == "key heads first" else (3, KEY_HEADS)
            q = q.view(*x.shape[:2], *shape, HEAD_DIM)
        q = q.reshape(*x.shape[:2], HEADS, HEAD_DIM).transpose(1, 2)
        k, v = (part(x).view(*x.shape[:2], KEY_HEADS, HEAD_DIM).transpose(1, 2) for part in (self.k, self.v))
        if self.rotary:
            q, k = (torch.cat((part[..., 1:].cos() * part[..., 1:], part[..., :1]), dim=-1) for part in (q, k))
        merged: Tensor = self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))
        return merged

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (
            part.repeat(1, 3, 1, 1) if self.order == "repeat" else part.repeat_interleave(3, dim=1) for part in (k, v)
        )
        return (q @ k.mT * HEAD_DIM**-0.5).softmax(-1) @ v


class TwoPaths(Grouped):
    """The same with a fused branch."""

    def __init__(self, order: Order, flash: bool) -> None:
        super().__init__(order)
        self.flash = flash

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.flash:
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return super().attend(q, k, v)


def codes(module: nn.Module, width: int = WIDTH, batch: int = 2, time: int = 5) -> list[str]:
    report = attn_guard.check(module, features(batch, time, width), preview=True)
    return [finding.code for finding in report if finding.fails]


def grouping(module: nn.Module, width: int = WIDTH) -> Grouping:
    (site,) = attn_guard.xray(module, features(width=width)).sites
    return Grouping(site.trace, site.influence)


@pytest.mark.parametrize("rotary", [False, True])
def test_orders(rotary: bool) -> None:
    found = grouping(seeded(Grouped, "repeat", rotary=rotary))
    assert (found.heads, found.order, found.viewed) == ((6, 2), TILES, "")
    assert grouping(seeded(Grouped, "interleave", rotary=rotary)).order == BLOCKS


@pytest.mark.parametrize(("key_heads", "order"), [(1, ""), (2, BLOCKS), (4, "")])
def test_orders_of_torch(key_heads: int, order: str) -> None:
    assert grouping(seeded(Sdpa, key_heads=key_heads, width=28, heads=4), width=28).order == order


def test_groups_folded_into_rows() -> None:
    assert grouping(seeded(GroupedFolded), width=28).order == BLOCKS


@pytest.mark.parametrize("order", ["repeat", "interleave"])
def test_without_evidence_either_order_is_right(order: Order) -> None:
    assert codes(seeded(Grouped, order)) == []


@pytest.mark.parametrize(("batch", "time"), [(2, 5), (1, 2), (6, 6), (3, 7)])
@pytest.mark.parametrize(
    ("order", "view", "expected"),
    [
        ("repeat", "key heads first", ["ATN308"]),
        ("repeat", "groups first", []),
        ("interleave", "key heads first", []),
        ("interleave", "groups first", ["ATN308"]),
    ],
)
def test_against_the_view_of_the_queries(order: Order, view: str, expected: list[str], batch: int, time: int) -> None:
    assert codes(seeded(Grouped, order, view), batch=batch, time=time) == expected


@pytest.mark.parametrize("flash", [False, True])
def test_against_another_path(flash: bool) -> None:
    assert codes(seeded(TwoPaths, "interleave", flash)) == []
    report = attn_guard.check(seeded(TwoPaths, "repeat", flash), features(width=WIDTH))
    (found,) = [finding for finding in report if finding.fails]
    assert (found.code, found.consequences) == ("ATN308", ("ATN503",))


class Unlike(Grouped):
    """Keys are spread in one order, values in another."""

    def __init__(self, order: Order, values: Order) -> None:
        super().__init__(order)
        self.values = values

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def spread(part: Tensor, order: Order) -> Tensor:
            return part.repeat(1, 3, 1, 1) if order == "repeat" else part.repeat_interleave(3, dim=1)

        k, v = spread(k, self.order), spread(v, self.values)
        return (q @ k.mT * HEAD_DIM**-0.5).softmax(-1) @ v


@pytest.mark.parametrize(
    ("keys", "values", "expected"),
    [
        ("repeat", "repeat", []),
        ("interleave", "interleave", []),
        (
            "repeat",
            "interleave",
            ["6 query heads take 2 heads of keys in turn; by the values they are grouped otherwise"],
        ),
        (
            "interleave",
            "repeat",
            ["6 query heads take 2 heads of values in turn; by the keys they are grouped otherwise"],
        ),
    ],
)
def test_keys_against_values(keys: Order, values: Order, expected: list[str]) -> None:
    report = attn_guard.check(seeded(Unlike, keys, values), features(width=WIDTH))
    assert [finding.message for finding in report] == expected
