"""Weights of `nn.MultiheadAttention` that nobody reads, or that are the mean over heads."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source

MODULE = """\
from torch import nn


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)

    def forward(self, x, options):
        BODY
"""


def codes(body: str) -> list[str]:
    source = MODULE.replace("BODY", body.replace("\n", "\n        "))
    return [finding.code for finding in lint_source(source, "block.py", preview=True, select=["ATN6"])]


@pytest.mark.parametrize(
    "body",
    [
        "return x + self.attn(x, x, x)[0]",
        "y, _ = self.attn(x, x, x)\nreturn x + y",
        "y, unused = self.attn(x, x, x, need_weights=True)\nreturn x + y",
        "y = self.attn(x, x, x, average_attn_weights=False)[0]\nreturn y",
    ],
)
def test_weights_that_nobody_reads_are_remarked_on(body: str) -> None:
    assert codes(body) == ["ATN604"]


@pytest.mark.parametrize(
    "body",
    [
        "return x + self.attn(x, x, x, need_weights=False)[0]",
        "y, _ = self.attn(x, x, x, need_weights=False)\nreturn x + y",
        "y, w = self.attn(x, x, x, average_attn_weights=False)\nreturn x + y, w",
        "y, w = self.attn(x, x, x)\nself.seen = w\nreturn x + y",
        "y, _ = self.attn(x, x, x, **options)\nreturn x + y",
        "y, _ = self.attn(x, x, x, need_weights=options)\nreturn x + y",
        "both = self.attn(x, x, x)\nreturn both[0]",
    ],
)
def test_weights_that_are_read_or_not_asked_for_are_left_alone(body: str) -> None:
    assert codes(body) == []


@pytest.mark.parametrize(
    "body",
    ["return self.attn(x, x, x)", "y, w = self.attn(x, x, x)\nreturn x + y, w", "w = self.attn(x, x, x)[1]\nreturn w"],
)
def test_a_returned_mean_over_heads_is_remarked_on(body: str) -> None:
    assert codes(body) == ["ATN601"]


def test_maps_of_single_heads_are_left_alone() -> None:
    assert codes("return self.attn(x, x, x, average_attn_weights=False)") == []
