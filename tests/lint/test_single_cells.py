"""Causal masks that are drawn for a size which the function asserts to be 1."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source

SOURCE = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from patterns import causal_pattern, global_pattern


class GlobalAttention(nn.Module):
    def __init__(self, query_mask, causal=False):
        super().__init__()
        {check}
        allowed = global_pattern(query_mask[:, 0])
        if causal:
            allowed &= {drawn}
        self.register_buffer("allowed", allowed)

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.allowed)
"""
CHECK = "assert query_mask.shape[1] == 1 and query_mask.shape[0] > query_mask.shape[1], 'N x 1'"


def found(check: str, drawn: str) -> list[tuple[str, int]]:
    report = lint_source(SOURCE.format(check=check, drawn=drawn), "attention.py")
    return [(finding.code, finding.location.line) for finding in report]


@pytest.mark.parametrize(
    ("check", "drawn"),
    [
        (CHECK, "causal_pattern(query_mask.shape[1])"),
        (CHECK, "causal_pattern(size=query_mask.size(1))"),
        ("assert 1 == query_mask.shape[1]", "torch.ones(query_mask.shape[1], query_mask.shape[1]).tril().bool()"),
        (
            "n = query_mask.shape[1]\n        assert n == 1",
            "torch.tril(torch.ones((n, n), dtype=torch.bool).view(n, n))",
        ),
    ],
)
def test_triangle_of_a_size_that_is_asserted_to_be_1_is_found(check: str, drawn: str) -> None:
    line = SOURCE.format(check=check, drawn=drawn).split("&=")[0].count("\n") + 1
    assert found(check, drawn) == [("ATN214", line)]


@pytest.mark.parametrize(
    ("check", "drawn"),
    [
        (CHECK, "causal_pattern(query_mask.shape[0])"),
        ("pass", "causal_pattern(query_mask.shape[1])"),
        ("assert query_mask.shape[1] == 1 or causal", "causal_pattern(query_mask.shape[1])"),
        ("assert query_mask.shape[1] != 1", "causal_pattern(query_mask.shape[1])"),
        ("assert query_mask.shape[1] == 2", "causal_pattern(query_mask.shape[1])"),
        (CHECK, "global_pattern(query_mask.shape[1])"),
        (CHECK, "causal_pattern(1)"),
    ],
)
def test_triangles_of_other_sizes_are_fine(check: str, drawn: str) -> None:
    assert found(check, drawn) == []
