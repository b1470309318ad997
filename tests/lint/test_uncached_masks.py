"""Causal masks that are applied only where there is no cache."""

from __future__ import annotations

import textwrap

import pytest

from attn_guard.lint.run import lint_source
from tests.lint.sources import HEAD

START = HEAD.replace("mask=None", "cache=None").replace('"keep", torch.tril(torch.ones(64, 64))', '"future", FUTURE')
START = START.replace("FUTURE", "torch.ones(64, 64).triu(1).bool()")
FILL = "if cache is not None:\n    k, v = cache.update(k, v)\n"
SCORES = "scores = q @ k.transpose(-2, -1) * self.scale\n"
MASK = "scores = scores.masked_fill(self.future[:t, :t], -torch.inf)"
END = "\nreturn self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1))"


def found(body: str) -> list[tuple[str, str]]:
    source = START + textwrap.indent(body, " " * 8) + "\n"
    lines = source.splitlines()
    return [(f.code, lines[f.location.line - 1].strip()) for f in lint_source(source, "attention.py")]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (f"{FILL}{SCORES}if cache is None:\n    {MASK}{END}", "if cache is None:"),
        (
            f"{FILL}{SCORES}if cache is None:\n    scores.masked_fill_(self.future[:t, :t], -1e9){END}",
            "if cache is None:",
        ),
        (
            FILL + "y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)\nreturn self.o(y)",
            "y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)",
        ),
        (
            FILL + "is_causal = cache is None\n"
            "y = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)\nreturn self.o(y)",
            "y = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)",
        ),
    ],
)
def test_mask_that_a_cache_switches_off_is_found(body: str, line: str) -> None:
    assert found(body) == [("ATN214", line)]


@pytest.mark.parametrize(
    "body",
    [
        f"{FILL}{SCORES}if t > 1:\n    past = k.size(2) - t\n"
        f"    scores = scores.masked_fill(self.future[past : past + t, : k.size(2)], -torch.inf){END}",
        f"{FILL}{SCORES}if cache is None or t != 1:\n    {MASK}{END}",
        f"assert cache is None or t == 1\n{FILL}{SCORES}if cache is None:\n    {MASK}{END}",
        # the prompt comes in without a cache, which is made of what is returned
        f"if cache is not None:\n    k = torch.cat([cache[0], k], 2)\n{SCORES}if cache is None:\n    {MASK}{END}",
        # another mask for the cached path
        f"{FILL}{SCORES}if cache is None:\n    {MASK}\nelse:\n    scores = scores + cache.mask(t){END}",
        f"{FILL}y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)\nreturn self.o(y)",
    ],
)
def test_masks_that_a_prompt_meets_are_fine(body: str) -> None:
    assert "ATN214" not in [code for code, _ in found(body)]
