"""Fused projections and how they are cut."""

from __future__ import annotations

import pytest
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from tests.probe.modules import HEAD_DIM, STYLES, D, H, features, seeded
from tests.probe.silent_modules import Encoder


class Grouped(nn.Module):
    """Seven query heads and one head of keys; the views take what they get."""

    def __init__(self, cut: list[int] | int, states: bool = True) -> None:
        super().__init__()
        if states:
            self.num_heads, self.num_kv_heads = 7, 1
        self.cut = cut
        self.qkv = nn.Linear(49, 63)
        self.out = nn.Linear(21 if isinstance(cut, int) else 49, 49)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (-1, 7)).transpose(1, 2) for part in self.qkv(x).split(self.cut, dim=-1))
        context = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.out(context.transpose(1, 2).flatten(2))


def codes(module: nn.Module, width: int = D) -> list[str]:
    report = attn_guard.check(module, features(width=width), preview=True)
    return [finding.code for finding in report if finding.fails]


def test_equal_thirds_that_fit_by_chance() -> None:
    (found,) = attn_guard.check(seeded(Grouped, 21), features(width=49))
    assert (found.code, found.expected, found.found) == ("ATN311", "49 + 7 + 7", "21 + 21 + 21")


def test_other_cuts_are_right() -> None:
    assert codes(seeded(Grouped, [49, 7, 7]), 49) == []
    assert codes(seeded(Grouped, 21, states=False), 49) == []
    module = seeded(STYLES["fused qkv"])
    module.num_heads, module.num_kv_heads = H, 1  # type: ignore[assignment]
    assert codes(module) == []


class TwoPaths(Encoder):
    """[q | k | v], or head by head; the fused branch may do it its own way."""

    def __init__(self, by_head: bool, other_by_head: bool, flash: bool) -> None:
        super().__init__()
        self.flash, self.by_head, self.other_by_head = flash, by_head, other_by_head
        self.qkv = nn.Linear(D, 3 * D)

    def forward(self, x: Tensor) -> Tensor:
        if self.flash:
            return self.merge(F.scaled_dot_product_attention(*self.parts(x, self.other_by_head)))
        q, k, v = self.parts(x, self.by_head)
        return self.merge(self.scores(q, k).softmax(-1) @ v)

    def parts(self, x: Tensor, by_head: bool) -> tuple[Tensor, Tensor, Tensor]:
        qkv = self.qkv(x)
        if by_head:
            q, k, v = qkv.view(*x.shape[:2], H, 3, HEAD_DIM).permute(3, 0, 2, 1, 4).unbind(0)
        else:
            q, k, v = qkv.view(*x.shape[:2], 3, H, HEAD_DIM).permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v


@pytest.mark.parametrize("flash", [False, True])
@pytest.mark.parametrize("by_head", [False, True])
def test_two_paths(by_head: bool, flash: bool) -> None:
    assert codes(seeded(TwoPaths, by_head, by_head, flash)) == []
    (found,) = [f for f in attn_guard.check(seeded(TwoPaths, by_head, not by_head, flash)) if f.fails]
    assert (found.code, found.consequences) == ("ATN311", ("ATN503",))
