"""Rows that are moved, scaled and shifted on their way are found again by their labels; all others are left out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attn_guard.probe.flow import Flow
from attn_guard.probe.moves import moved_labels
from attn_guard.probe.origins import rows_of
from attn_guard.probe.record import record

BATCH, TIME, HEADS, WIDTH = 2, 3, 2, 4
Way = Callable[[Tensor], Tensor]


def split(x: Tensor) -> Tensor:
    return x.view(BATCH, TIME, HEADS, WIDTH).transpose(1, 2)


FOLLOWED: dict[str, Way] = {
    "split": split,
    "scaled": lambda x: split(x) * 0.35,
    "scaled in place": lambda x: split(x).contiguous().div_(3),
    "biased": lambda x: split(x + torch.linspace(-3, 3, HEADS * WIDTH)),
    "subtracted from": lambda x: split(1 - x),
    "scaled by feature": lambda x: split(x * torch.linspace(0.1, 3, HEADS * WIDTH)),
}
LEFT_OUT: dict[str, Way] = {
    "squared": lambda x: split(x * x),
    "inverse": lambda x: split(1 / x),
    "added to itself moved": lambda x: split(x + x.roll(1, 1)),
    "rotated": lambda x: split(torch.cat((-x[..., 4:], x[..., :4]), -1)),
    "joined with itself": lambda x: split(torch.cat((x, x), -1).chunk(2, -1)[1]),
    "normed": lambda x: split(x / x.norm()),
    "hidden": lambda x: split(x * torch.eye(HEADS * WIDTH)[0]),
    "rounded": lambda x: split(torch.div(x, 3, rounding_mode="floor")),
}


def labels(way: Way) -> Tensor | None:
    class Moves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return way(x)

    x = torch.randn(BATCH, TIME, HEADS * WIDTH)
    tape = record(Moves(), (x,), {}, {id(x): "x"})
    source, target = tape.inputs()["x"], tape.results()[0]
    rows = rows_of(tape, source)
    return moved_labels(Flow.of(tape), rows, torch.arange(len(rows)), [target]).get(target)


@pytest.mark.parametrize("way", FOLLOWED)
def test_each_number_has_the_label_of_its_row(way: str) -> None:
    own = torch.arange(BATCH * TIME).view(BATCH, 1, TIME, 1).expand(BATCH, HEADS, TIME, WIDTH)
    found = labels(FOLLOWED[way])
    assert found is not None
    assert torch.equal(found, own)


@pytest.mark.parametrize("way", LEFT_OUT)
def test_what_is_more_than_moved_is_left_out(way: str) -> None:
    assert labels(LEFT_OUT[way]) is None
