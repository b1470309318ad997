"""The functions of ``flash_attn``: what they scale, drop and take for the positions."""

from __future__ import annotations

import textwrap

import pytest

from attn_guard.findings import Finding
from attn_guard.lint.judge import sites_of
from attn_guard.lint.run import lint_source

HEAD = """\
import math

import flash_attn
import torch
import torch.nn as nn
import torch.nn.functional as F
from einops import rearrange
from flash_attn import flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func
from flash_attn.bert_padding import pad_input, unpad_input
from flash_attn.flash_attn_interface import flash_attn_varlen_func, flash_attn_varlen_qkvpacked_func
from .kernels import flash_attn_unpadded_func


class Attention(nn.Module):
    def __init__(self, d_model, heads, dropout):
        super().__init__()
        assert d_model % heads == 0
        self.heads, self.d_model, self.head_dim = heads, d_model, d_model // heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.kv = nn.Linear(d_model, 2 * d_model)
        self.scale = self.head_dim ** -0.5
        self.dropout = dropout

    def forward(self, x, lengths, longest):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, self.heads, self.head_dim) for f in (self.q, self.k, self.v))
        qkv = self.qkv(x).view(b, t, 3, self.heads, self.head_dim)
        kv = self.kv(x).view(b, t, 2, self.heads, self.head_dim)
"""


def forward(body: str) -> str:
    return HEAD + textwrap.indent(textwrap.dedent(body).strip("\n") + "\n", " " * 8)


def findings(body: str) -> tuple[Finding, ...]:
    return lint_source(forward(body), "attention.py").findings


def codes(body: str) -> list[str]:
    return [finding.code for finding in findings(body)]


RIGHT = [
    "out = flash_attn_func(q, k, v, causal=True)",
    "out = flash_attn_func(q, k, v, self.dropout if self.training else 0.0)",
    "out = flash_attn.flash_attn_func(q, k, v, softmax_scale=self.scale)",
    "out = flash_attn_func(q * self.scale, k, v, softmax_scale=1.0)",
    "out = flash_attn_func(q * self.scale, k, v, 0.0, 1.0, True)",
    "out, lse, _ = flash_attn_func(q, k, v, return_attn_probs=True)",
    "out = flash_attn_qkvpacked_func(qkv, causal=True)",
    "out = flash_attn_qkvpacked_func(torch.stack([q, k, v], dim=2), 0.0, self.scale)",
    "out = flash_attn_kvpacked_func(q, kv, 0.0, softmax_scale=1 / math.sqrt(self.head_dim))",
]


@pytest.mark.parametrize("call", RIGHT)
def test_a_right_call_is_a_complete_site_and_silent(call: str) -> None:
    body = f"{call}\nreturn self.o(out.reshape(b, t, self.d_model))"
    assert codes(body) == []
    (site,) = sites_of(forward(body))
    assert site.context
    assert site.softmax


def test_the_built_in_scale_is_known() -> None:
    (site,) = sites_of(forward("return flash_attn_func(q, k, v)"))
    assert site.scale
    assert site.scale.is_right


@pytest.mark.parametrize(
    "call",
    [
        "flash_attn_func(q * self.scale, k, v)",
        "flash_attn_func(q * self.scale, k, v, causal=True)",
        "flash_attn_func(q, k / math.sqrt(self.head_dim), v, 0.0, self.scale)",
        "flash_attn_kvpacked_func(q * self.scale, kv)",
        "flash_attn_varlen_func(q.flatten(0, 1) * self.scale, k, v, lengths, lengths, longest, longest, 0.0)",
        "flash_attn_unpadded_func(q.flatten(0, 1) * self.scale, k, v, lengths, lengths, longest, longest)",
    ],
)
def test_a_second_scale_is_found(call: str) -> None:
    assert codes(f"return {call}") == ["ATN103"]


def test_another_scale_is_found() -> None:
    assert codes("return flash_attn_func(q, k, v, softmax_scale=self.d_model ** -0.5)") == ["ATN102"]
    assert codes("return flash_attn_func(q, k, v, softmax_scale=1.0)") == ["ATN101"]


@pytest.mark.parametrize(
    "call",
    [
        "flash_attn_func(q, k, v, self.dropout)",
        "flash_attn_func(q, k, v, dropout_p=self.dropout, causal=True)",
        "flash_attn_qkvpacked_func(qkv, self.dropout)",
        "flash_attn_kvpacked_func(q, kv, 0.1)",
        "flash_attn_varlen_func(q, k, v, lengths, lengths, longest, longest, self.dropout)",
        "flash_attn_varlen_qkvpacked_func(qkv, lengths, longest, self.dropout, causal=True)",
    ],
)
def test_dropout_that_knows_no_mode_is_found(call: str) -> None:
    assert codes(f"return {call}") == ["ATN501"]


@pytest.mark.parametrize(
    "body",
    [
        "q, k, v = (y.transpose(1, 2) for y in (q, k, v))\nreturn flash_attn_func(q, k, v)",
        "return flash_attn_func(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=True)",
        "return flash_attn_func(*(y.transpose(1, 2) for y in (q, k, v)), causal=True)",
    ],
)
def test_heads_in_the_place_of_time_are_found(body: str) -> None:
    (finding,) = findings(body)
    assert finding.code == "ATN306"
    assert "leave the transpose out" in finding.help


def test_a_context_is_merged_as_it_lies() -> None:
    assert codes("return self.o(flash_attn_func(q, k, v).transpose(1, 2).reshape(b, t, self.d_model))") == ["ATN304"]


@pytest.mark.parametrize(
    "call",
    [
        # arguments of a kernel that is not known, or of another version
        "flash_attn_unpadded_func(q * self.scale, k, v, lengths, lengths, longest, longest, 0.0, 1.0)",
        "flash_attn_func(q * self.scale, k, v, **options)",
        # a cap on the scores
        "flash_attn_func(q, k, v, softmax_scale=1.0, softcap=30.0)",
        # the rate of the caller
        "flash_attn_func(q, k, v, dropout_p=lengths)",
    ],
)
def test_what_is_not_known_is_no_finding(call: str) -> None:
    assert codes(f"return {call}") == []


def test_the_path_without_a_mask_is_found() -> None:
    body = """
    if self.use_flash:
        return flash_attn_func(q, k, v)
    q, k, v = (y.transpose(1, 2) for y in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    """
    assert codes(body) == ["ATN209"]
    assert codes(body.replace("func(q, k, v)", "func(q, k, v, causal=True)")) == []
    assert codes(body.replace("func(q, k, v)", "func(q, k, v, window_size=(64, 0))")) == []


def test_a_function_of_that_name_in_the_file_is_read_as_it_stands() -> None:
    body = "q, k, v = (y.transpose(1, 2) for y in (q, k, v))\nreturn flash_attn_func(q * self.scale, k, v)"
    source = forward(body).replace("from flash_attn import flash_attn_func,", "from flash_attn import")
    source += "\n\ndef flash_attn_func(q, k, v):\n    return F.scaled_dot_product_attention(q, k, v, scale=1.0)\n"
    assert [finding.code for finding in lint_source(source, "attention.py")] == []
