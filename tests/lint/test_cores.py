"""Attention cores of other files, and what is done with the heads before and behind them (ATN304)."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source

SOURCE = """\
import torch
from torch import nn
from .cores import ScaledDotProductAttention


class MultiHeadAttention(nn.Module):
    def __init__(self, n_head, d_model, d_k, d_v):
        super().__init__()
        self.n_head, self.d_k, self.d_v = n_head, d_k, d_v
        self.w_qs = nn.Parameter(torch.FloatTensor(n_head, d_model, d_k))
        self.w_ks = nn.Parameter(torch.FloatTensor(n_head, d_model, d_k))
        self.w_vs = nn.Parameter(torch.FloatTensor(n_head, d_model, d_v))
        self.attention = CORE
        self.proj = nn.Linear(n_head * d_v, d_model)

    def forward(self, q, k, v, mask=None):
        d_k, d_v, n_head = self.d_k, self.d_v, self.n_head
        size, len_q, d_model = q.size()
        size, len_k, d_model = k.size()
        q = torch.bmm(q.repeat(n_head, 1, 1).view(n_head, -1, d_model), self.w_qs).view(-1, len_q, d_k)
        k = torch.bmm(k.repeat(n_head, 1, 1).view(n_head, -1, d_model), self.w_ks).view(-1, len_k, d_k)
        v = torch.bmm(v.repeat(n_head, 1, 1).view(n_head, -1, d_model), self.w_vs).view(-1, len_k, d_v)
        CALL
        MERGE
        return self.proj(out)
"""
CORE = "ScaledDotProductAttention(d_model)"
CALL = "out, weights = self.attention(q, k, v, mask=mask)"
SCRAMBLED = "out = out.view(size, len_q, -1)"


def lines(core: str = CORE, call: str = CALL, merge: str = SCRAMBLED) -> list[str]:
    source = SOURCE.replace("CORE", core).replace("CALL", call).replace("MERGE", merge.replace("\n", "\n        "))
    found = lint_source(source, "attention.py")
    assert all(finding.code == "ATN304" for finding in found)
    return [source.splitlines()[finding.location.line - 1].strip() for finding in found]


@pytest.mark.parametrize(
    ("call", "merge"),
    [
        (CALL, SCRAMBLED),
        ("out = self.attention(q, k, v)", "out = out.reshape(size, len_q, n_head * d_v)"),
        ("out, _ = self.attention(q, k, v, mask)", SCRAMBLED),
    ],
)
def test_heads_of_a_core_out_of_sight_that_are_read_as_columns_are_found(call: str, merge: str) -> None:
    assert lines(call=call, merge=merge) == [merge]


@pytest.mark.parametrize(
    ("core", "call", "merge"),
    [
        (CORE, CALL, "out = torch.cat(out.split(size, dim=0), dim=-1)"),
        (CORE, CALL, "out = out.view(n_head, size, len_q, d_v).permute(1, 2, 0, 3).reshape(size, len_q, -1)"),
        (CORE, "out, weights = self.attention(q, k, v, n_head)", SCRAMBLED),  # it may merge them itself
        ("ScaledDotProductAttention(d_model, n_head)", CALL, SCRAMBLED),
        ("ScaledDotProductAttention(d_model, heads=n_head)", CALL, SCRAMBLED),
        ("ScaledDotProductAttention(**options)", CALL, SCRAMBLED),
        ("ScaledDotProductAttention(config)", CALL, SCRAMBLED),
        (CORE, "out, weights = self.attention(q, k, v, *others)", SCRAMBLED),
        ("make_core(d_model)", CALL, SCRAMBLED),
    ],
)
def test_right_merges_and_cores_that_may_know_the_heads_are_fine(core: str, call: str, merge: str) -> None:
    assert lines(core, call, merge) == []
