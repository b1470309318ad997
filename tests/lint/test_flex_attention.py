"""``flex_attention``, its ``score_mod``, and the masks that ``create_block_mask`` makes of a ``mask_mod``."""

from __future__ import annotations

import textwrap

import pytest

from attn_guard.findings import Finding
from attn_guard.lint.judge import sites_of
from attn_guard.lint.run import lint_source

HEAD = """\
import torch
import torch.nn as nn
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention, or_masks


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


class Attention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        assert d_model % heads == 0
        self.heads, self.d_model, self.head_dim = heads, d_model, d_model // heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.scale = self.head_dim ** -0.5
        self.block_mask = create_block_mask(causal, B=None, H=None, Q_LEN=64, KV_LEN=64)

    def forward(self, x, visible_mask, slopes, documents):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, self.heads, self.head_dim).transpose(1, 2) for f in (self.q, self.k, self.v))
"""


def forward(body: str) -> str:
    return HEAD + textwrap.indent(textwrap.dedent(body).strip("\n") + "\n", " " * 8)


def findings(body: str) -> tuple[Finding, ...]:
    return lint_source(forward(body), "attention.py").findings


def codes(body: str) -> list[str]:
    return [finding.code for finding in findings(body)]


@pytest.mark.parametrize(
    "call",
    [
        "flex_attention(q, k, v)",
        "flex_attention(q, k, v, block_mask=self.block_mask, scale=self.scale)",
        "flex_attention(query=q * self.scale, key=k, value=v, scale=1.0, enable_gqa=True)",
        "flex_attention(q, k, v, return_lse=True)[0]",
    ],
)
def test_a_right_call_is_a_complete_site_and_silent(call: str) -> None:
    body = f"context = {call}\nreturn self.o(context.transpose(1, 2).reshape(b, t, self.d_model))"
    assert codes(body) == []
    (site,) = sites_of(forward(body))
    assert site.context
    assert site.scale
    assert site.scale.is_right


def test_scales_are_those_of_the_built_in() -> None:
    assert codes("return flex_attention(q * self.scale, k, v)") == ["ATN103"]
    assert codes("return flex_attention(q, k, v, scale=1.0)") == ["ATN101"]
    assert codes("return flex_attention(q, k, v, scale=self.d_model ** -0.5)") == ["ATN102"]


@pytest.mark.parametrize(
    "made",
    [
        "compiled_flex_attention = torch.compile(flex_attention, dynamic=False)",
        "flex_attention = torch.compile(flex_attention)",
    ],
)
def test_what_is_compiled_is_what_it_was(made: str) -> None:
    source = forward(f"return {made.split()[0]}(q * self.scale, k, v)").replace(
        "\n\ndef causal", f"\n{made}\n\n\ndef causal"
    )
    assert [finding.code for finding in lint_source(source, "attention.py")] == ["ATN103"]
    assert codes(f"{made}\nreturn {made.split()[0]}(q * self.scale, k, v)") == ["ATN103"]


def test_heads_before_time_are_asked_for() -> None:
    body = "return flex_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)"
    assert codes(body) == ["ATN306"]


def masked(test: str) -> str:
    return f"""
    def mask_mod(b, h, q_idx, kv_idx):
        return {test}
    mask = create_block_mask(mask_mod, b, None, t, t)
    return flex_attention(q, k, v, block_mask=mask)
    """


@pytest.mark.parametrize(
    "test",
    [
        "q_idx >= kv_idx",
        "kv_idx <= q_idx",
        "q_idx - kv_idx >= 0",
        "(q_idx >= kv_idx) & (q_idx - kv_idx <= 128)",
        "(q_idx >= kv_idx) & (documents[q_idx] == documents[kv_idx])",
        "(kv_idx < 16) | (q_idx >= kv_idx)",
        "(q_idx - kv_idx).abs() <= 64",
        "q_idx + t >= kv_idx",
        "visible_mask[b, kv_idx]",
        "q_idx // 8 >= kv_idx // 8",
        "~(q_idx < kv_idx)",
    ],
)
def test_masks_that_are_true_where_a_key_is_seen_are_right(test: str) -> None:
    assert codes(masked(test)) == []


@pytest.mark.parametrize("test", ["q_idx < kv_idx", "kv_idx > q_idx", "~(q_idx >= kv_idx)"])
def test_masks_that_are_true_in_the_future_are_upside_down(test: str) -> None:
    (finding,) = findings(masked(test))
    assert finding.code == "ATN205"
    assert "mask_mod" in finding.message


@pytest.mark.parametrize(
    "test", ["q_idx > kv_idx", "q_idx + 1 >= kv_idx", "q_idx >= kv_idx - 1", "q_idx >= kv_idx + 1"]
)
def test_masks_that_are_one_off_are_found(test: str) -> None:
    assert codes(masked(test)) == ["ATN215"]


def test_a_padding_mask_read_both_ways_is_found() -> None:
    body = """
    mask = create_block_mask(lambda b, h, i, j: visible_mask[b, j], b, None, t, t)
    scores = (q @ k.mT * self.scale).masked_fill(visible_mask[:, None, None], float("-inf"))
    return flex_attention(q, k, v, block_mask=mask) + scores.softmax(-1) @ v
    """
    assert codes(body) == ["ATN205"]


def test_a_mask_is_read_where_it_is_made() -> None:
    source = forward("pass").replace("return q_idx >= kv_idx", "return q_idx < kv_idx")
    source += "\n\ndef make_mask(length):\n    return create_block_mask(causal, None, None, length, length)\n"
    assert [finding.code for finding in lint_source(source, "attention.py")] == ["ATN205"]


def changed(result: str) -> str:
    return f"""
    def score_mod(score, b, h, q_idx, kv_idx):
        return {result}
    return flex_attention(q, k, v, score_mod=score_mod)
    """


@pytest.mark.parametrize(
    "result",
    [
        "torch.where(q_idx >= kv_idx, score, float('-inf'))",
        "score + (kv_idx - q_idx) * slopes[h]",
        "torch.tanh(score / 20) * 20",
        "score + slopes[h, q_idx, kv_idx]",
        "score",
    ],
)
def test_a_score_mod_may_mask_cap_or_add(result: str) -> None:
    assert codes(changed(result)) == []


@pytest.mark.parametrize(
    ("result", "code"),
    [
        ("score * self.scale", "ATN103"),
        ("torch.where(q_idx <= kv_idx, score, float('-inf'))", ""),
        ("torch.where(q_idx + 1 >= kv_idx, score, float('-inf'))", "ATN215"),
        ("torch.where(q_idx >= kv_idx, score, 0.0)", "ATN203"),
    ],
)
def test_a_score_mod_is_read_as_what_happens_to_the_scores(result: str, code: str) -> None:
    assert codes(changed(result)) == [code] * bool(code)


def test_a_function_of_that_name_from_elsewhere_is_not_taken_for_it() -> None:
    source = forward("return flex_attention(q * self.scale, k, v)").replace(
        "torch.nn.attention.flex_attention", ".mine"
    )
    assert [finding.code for finding in lint_source(source, "attention.py")] == []
