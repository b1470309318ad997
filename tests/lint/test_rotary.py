"""What rotary angles are counted along (ATN702): by functions of the file and of well-known libraries."""

from __future__ import annotations

import textwrap

import pytest

from attn_guard.lint.run import lint_source

TABLES = """\
import torch
import torch.nn.functional as F
from torch import nn
from flash_attn.layers.rotary import apply_rotary_emb
from rotary_embedding_torch import RotaryEmbedding
from torchtune.modules import RotaryPositionalEmbeddings
from xformers.components.positional_embedding import RotaryEmbedding as XRotary
from .own import OwnRotary


class Tables(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.frequencies = 1.0 / 10000 ** (torch.arange(0, dim, 2) / dim)

    def forward(self, x):
        length = x.shape[1]
        angles = torch.outer(torch.arange(length), self.frequencies)
        return angles.cos()[None, :, None, :], angles.sin()[None, :, None, :]


def turn(x, cos, sin):
    left, right = x.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


class Cast(XRotary):
    def forward(self, q, k, v):
        q, k = super().forward(q, k)
        return q.to(v.dtype), k.to(v.dtype), v


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        assert dim % num_heads == 0
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.tables, self.cast, self.own = Tables(self.head_dim), Cast(self.head_dim), OwnRotary(self.head_dim)
        self.rotary = RotaryEmbedding(self.head_dim)
        self.before_heads = RotaryEmbedding(self.head_dim, seq_before_head_dim=True)
        self.tune = RotaryPositionalEmbeddings(self.head_dim)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, self.num_heads, self.head_dim) for p in (self.q, self.k, self.v))
"""
AFTER = "q, k, v = (p.transpose(1, 2) for p in (q, k, v))\n"
CORE = "return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)"


def lines(body: str) -> list[str]:
    """The source lines of what is found under ATN702."""
    source = TABLES + textwrap.indent(body + CORE + "\n", " " * 8)
    found = lint_source(source, "attention.py", select=["ATN702"])
    return [source.splitlines()[finding.location.line - 1].strip() for finding in found]


TURN = "cos, sin = self.tables(q)\nq, k = turn(q, cos, sin), turn(k, cos, sin)\n"


def test_the_call_that_brings_the_wrong_layout_is_blamed_and_the_count_shown_beside_it() -> None:
    source = TABLES + textwrap.indent(AFTER + TURN + CORE + "\n", " " * 8)
    (finding,) = lint_source(source, "attention.py", select=["ATN702"])
    assert "self.tables(q)" in source.splitlines()[finding.location.line - 1]
    place, label = finding.related[0]
    assert "torch.arange(length)" in source.splitlines()[place.line - 1]
    assert label == "counted here"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("q, k, v = self.cast(q, k, v)\n" + AFTER, ["q, k, v = self.cast(q, k, v)"]),
        ("q = self.rotary.rotate_queries_or_keys(q)\n" + AFTER, ["q = self.rotary.rotate_queries_or_keys(q)"]),
        (AFTER + "q = self.tune(q, input_pos=None)\n", ["q = self.tune(q, input_pos=None)"]),
        (AFTER + "k = apply_rotary_emb(k, cos, sin)\n", ["k = apply_rotary_emb(k, cos, sin)"]),
    ],
)
def test_layouts_that_a_library_takes_otherwise_are_found(body: str, found: list[str]) -> None:
    assert lines(body) == found


@pytest.mark.parametrize(
    "body",
    [
        TURN + AFTER,
        AFTER + "q, k, v = self.cast(q, k, v)\n",
        AFTER + "q = self.rotary.rotate_queries_or_keys(q)\n",
        "q = self.rotary.rotate_queries_or_keys(q, seq_dim=1)\n" + AFTER,
        "q = self.tune(q, input_pos=None)\n" + AFTER,
        "k = apply_rotary_emb(k, cos, sin)\n" + AFTER,
        "q, k = self.own(q), self.own(k)\n" + AFTER,  # nobody knows what it takes
        AFTER + "q, k = self.own(q), self.own(k)\n",
    ],
)
def test_layouts_that_fit_and_functions_that_nobody_knows_are_fine(body: str) -> None:
    assert lines(body) == []
