"""Grouped queries and keys (ATN308, ATN311), and what rotary angles count (ATN702)."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source

GROUPED = """\
import torch
from torch import nn


class Grouped(nn.Module):
    def __init__(self, dim, heads, kv_heads):
        super().__init__()
        assert dim % heads == 0 and heads % kv_heads == 0
        self.heads, self.kv_heads, self.groups, self.head_dim = heads, kv_heads, heads // kv_heads, dim // heads
        self.wq, self.wo = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.wk, self.wv = nn.Linear(dim, kv_heads * self.head_dim), nn.Linear(dim, kv_heads * self.head_dim)

    def forward(self, x):
        b, t, _ = x.shape
        q = QUERY
        k = self.wk(x).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.wv(x).view(b, t, self.kv_heads, self.head_dim).transpose(1, 2)
        k, v = (SPREAD for p in (k, v))
        c = (q @ k.mT * self.head_dim**-0.5).softmax(-1) @ v
        return self.wo(c.transpose(1, 2).reshape(b, t, -1))
"""
KEYS_OUTSIDE = "self.wq(x).view(b, t, self.kv_heads, self.groups, self.head_dim).flatten(2, 3).transpose(1, 2)"
GROUPS_OUTSIDE = "self.wq(x).view(b, t, self.groups, self.kv_heads, self.head_dim).flatten(2, 3).transpose(1, 2)"
PLAIN = "self.wq(x).view(b, t, self.heads, self.head_dim).transpose(1, 2)"
IN_TURN, IN_RUNS = "p.repeat(1, self.groups, 1, 1)", "p.repeat_interleave(self.groups, dim=1)"


def grouped(query: str, spread: str) -> list[str]:
    source = GROUPED.replace("QUERY", query).replace("SPREAD", spread)
    return [finding.code for finding in lint_source(source, "grouped.py")]


@pytest.mark.parametrize(("query", "spread"), [(KEYS_OUTSIDE, IN_TURN), (GROUPS_OUTSIDE, IN_RUNS)])
def test_keys_spread_in_another_order_than_the_queries_lie_in_are_found(query: str, spread: str) -> None:
    assert grouped(query, spread) == ["ATN308"]


def test_keys_and_values_spread_in_different_orders_are_found() -> None:
    source = GROUPED.replace("QUERY", PLAIN).replace("k, v = (SPREAD for p in (k, v))", f"k, v = {IN_RUNS}, {IN_TURN}")
    source = source.replace("p.repeat_", "k.repeat_").replace("p.repeat(", "v.repeat(")
    (finding,) = lint_source(source, "grouped.py")
    assert (finding.code, finding.related[0][1]) == ("ATN308", "heads lie in the other order here")
    assert "v.repeat(" in source.splitlines()[finding.location.line - 1]


@pytest.mark.parametrize(
    ("query", "spread"),
    [
        (KEYS_OUTSIDE, IN_RUNS),
        (GROUPS_OUTSIDE, IN_TURN),
        (PLAIN, IN_TURN),  # a layer trained from scratch may number its heads either way
        (PLAIN, IN_RUNS),
        (KEYS_OUTSIDE, "p.repeat(1, 1, 2, 1)"),
        (KEYS_OUTSIDE, "outside(p)"),
    ],
)
def test_keys_in_the_order_of_the_queries_or_without_evidence_are_fine(query: str, spread: str) -> None:
    assert grouped(query, spread) == []


FUSED = """\
import torch.nn.functional as F
from torch import nn


class Fused(nn.Module):
    def __init__(self, dim, num_heads, num_kv_heads):
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, dim // num_heads
        assert dim % num_heads == 0
        self.kv_size = num_kv_heads * self.head_dim
        self.qkv = nn.Linear(dim, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x)CUT
        q, k, v = (p.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for p in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2)
"""


@pytest.mark.parametrize(
    ("width", "cut", "found"),
    [
        ("dim + 2 * self.kv_size", ".chunk(3, dim=-1)", ["ATN311"]),
        ("(num_heads + 2 * num_kv_heads) * self.head_dim", ".chunk(3, -1)", ["ATN311"]),
        ("dim + self.kv_size + self.kv_size", ".chunk(3, dim=2)", ["ATN311"]),
        ("dim + 2 * self.kv_size", ".split([dim, self.kv_size, self.kv_size], dim=-1)", []),
        ("3 * dim", ".chunk(3, dim=-1)", []),
        ("dim + dim + dim", ".chunk(3, dim=-1)", []),
        ("self.kv_size + 2 * self.kv_size", ".chunk(3, dim=-1)", []),
    ],
)
def test_equal_thirds_of_a_projection_with_fewer_keys_are_found(width: str, cut: str, found: list[str]) -> None:
    source = FUSED.replace("WIDTH", width).replace("CUT", cut)
    assert [finding.code for finding in lint_source(source, "fused.py")] == found


ROTARY = """\
import torch
import torch.nn.functional as F
from torch import nn


def rotary(x):
    half = x.shape[-1] // 2
    n = x.shape[AXIS]
    angle = torch.arange(n)[:, None] * 10000 ** (-torch.arange(half) / half)
    left, right = x.chunk(2, dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        assert dim % num_heads == 0
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, self.num_heads, self.head_dim) for p in (self.q, self.k, self.v))
        BODY
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, -1)
"""
BEFORE = "q, k, v = rotary(q).transpose(1, 2), rotary(k).transpose(1, 2), v.transpose(1, 2)"
BEHIND = "q, k, v = rotary(q.transpose(1, 2)), rotary(k.transpose(1, 2)), v.transpose(1, 2)"


@pytest.mark.parametrize(
    ("axis", "body", "found"),
    [
        ("-2", BEFORE, ["ATN702"]),
        ("1", BEHIND, ["ATN702"]),
        ("-2", BEHIND, []),
        ("1", BEFORE, []),
        ("2", BEHIND, []),
    ],
)
def test_angles_counted_along_the_heads_are_found(axis: str, body: str, found: list[str]) -> None:
    source = ROTARY.replace("AXIS", axis).replace("BODY", body)
    assert [finding.code for finding in lint_source(source, "rotary.py")] == found


def test_slopes_counted_over_heads_on_purpose_are_fine() -> None:
    slopes = "angle = torch.arange(self.num_heads).cos() + torch.arange(t).sin()\n        "
    source = ROTARY.replace("AXIS", "-2").replace("BODY", slopes + BEHIND)
    assert lint_source(source, "rotary.py").findings == ()


def test_all_pairs_of_nodes_are_no_heads() -> None:
    source = """\
import torch
from torch import nn


class GraphAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        assert width % heads == 0
        self.heads, self.width = heads, width // heads
        self.linear, self.score = nn.Linear(width, width), nn.Linear(2 * self.width, 1)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, h, adjacent):
        nodes = h.shape[0]
        g = self.linear(h).view(nodes, self.heads, self.width)
        pairs = torch.cat([g.repeat_interleave(nodes, dim=0), g.repeat(nodes, 1, 1)], dim=-1)
        e = self.score(pairs.view(nodes, nodes, self.heads, 2 * self.width)).squeeze(-1)
        a = self.softmax(e.masked_fill(adjacent == 0, float("-inf")))
        return torch.einsum("ijh,jhf->ihf", a, g)
"""
    assert [finding.code for finding in lint_source(source, "graph.py")] == []
