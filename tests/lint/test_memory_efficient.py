"""``memory_efficient_attention`` of xformers: its layout, its scale and its dropout."""

from __future__ import annotations

import textwrap

import pytest

from attn_guard.lint.judge import sites_of
from attn_guard.lint.run import lint_source

HEAD = """\
import xformers.ops as xops
from torch import nn
from xformers.ops import memory_efficient_attention


def attend(query, key, value, is_causal):
    mask = xops.LowerTriangularMask() if is_causal else None
    return xops.memory_efficient_attention(query, key, value, attn_bias=mask)


class Attention(nn.Module):
    def __init__(self, dim, num_heads, dropout):
        super().__init__()
        assert dim % num_heads == 0
        self.num_heads, self.head_dim, self.dropout = num_heads, dim // num_heads, dropout
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.attn_fn = attend

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (p(x).view(b, t, self.num_heads, self.head_dim) for p in (self.q, self.k, self.v))
"""
SCALED = "q = q * self.head_dim ** -0.5\n"
AFTER = "q, k, v = (p.transpose(1, 2) for p in (q, k, v))\n"


def module(body: str) -> str:
    return HEAD + textwrap.indent(textwrap.dedent(body) + "\n", " " * 8)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (AFTER + "return self.o(memory_efficient_attention(q, k, v).transpose(1, 2).flatten(2))", "ATN306"),
        (AFTER + "return self.o(self.attn_fn(q, k, v, True).transpose(1, 2).flatten(2))", "ATN306"),
        (SCALED + "return self.o(memory_efficient_attention(q, k, v).flatten(2))", "ATN103"),
        ("return self.o(memory_efficient_attention(q, k, v, p=self.dropout).flatten(2))", "ATN501"),
        ("return self.o(memory_efficient_attention(q, k, v, None, self.dropout).flatten(2))", "ATN501"),
    ],
)
def test_faults_around_the_call_are_found(body: str, code: str) -> None:
    assert [finding.code for finding in lint_source(module(body), "attention.py")] == [code]


@pytest.mark.parametrize(
    "body",
    [
        "return self.o(self.attn_fn(q, k, v, is_causal=True).view(b, t, -1))",
        "return self.o(memory_efficient_attention(q, k, v, p=self.dropout if self.training else 0.0).flatten(2))",
        SCALED + "return self.o(memory_efficient_attention(q, k, v, scale=1.0).flatten(2))",
        "q, k, v = (p.transpose(1, 2).flatten(0, 1) for p in (q, k, v))\n"
        "return xops.memory_efficient_attention(q, k, v)",
    ],
)
def test_right_calls_are_fine_and_are_sites(body: str) -> None:
    source = module(body)
    assert [finding.code for finding in lint_source(source, "attention.py")] == []
    assert any(site.context for site in sites_of(source))
