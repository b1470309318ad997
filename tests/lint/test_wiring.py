"""Which tensors meet in an attention: memories (ATN401, ATN402), projections (ATN403), results (ATN406)."""

from __future__ import annotations

import textwrap

import pytest

from attn_guard.findings import Severity
from attn_guard.lint.run import lint_source

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn


class DecoderBlock(nn.Module):
    def __init__(self, d_model, h):
        super().__init__()
        assert d_model % h == 0
        self.h = h
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.self_attn = nn.MultiheadAttention(d_model, h, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(d_model, h, batch_first=True)
        self.norm = nn.LayerNorm(d_model)

    def split(self, x):
        return x.view(*x.shape[:2], self.h, -1).transpose(1, 2)

    def attend(self, q, k, v):
        q, k, v = self.split(q), self.split(k), self.split(v)
        return self.w_o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    def forward(self, SIGNATURE):
"""


def module(body: str, signature: str = "x") -> str:
    return HEAD.replace("SIGNATURE", signature) + textwrap.indent(textwrap.dedent(body).strip() + "\n", " " * 8)


def codes(source: str) -> list[str]:
    return [finding.code for finding in lint_source(source, "decoder.py")]


USES_ALL = "self.w_q(x), self.w_k(x), self.w_v(x)"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return self.attend(self.w_q(x), self.w_k(x), self.w_k(x))", "the value is made like the key; w_v"),
        ("return self.attend(self.w_q(x), self.w_q(x), self.w_v(x))", "the key is made like the query; w_k"),
        ("k = self.w_k(x)\nreturn self.attend(self.w_k(x), k, self.w_v(x))", "the query is made like the key; w_q"),
        ("return self.attend(self.w_q(x), self.w_k(x), x)", "the value is not projected; w_v"),
    ],
)
def test_projection_that_serves_two_parts_while_one_lies_idle_is_found(body: str, says: str) -> None:
    (finding,) = lint_source(module(body), "decoder.py")
    assert finding.code == "ATN403"
    assert finding.message == f"{says} is never used"


@pytest.mark.parametrize(
    "body",
    [
        f"return self.attend({USES_ALL})",
        "return self.attend(self.w_q(x), self.w_k(x), self.w_k(x)) + self.w_v(x)",  # w_v does something else
        "return self.attend(F.linear(x, self.w_q.weight), self.w_k(x), self.w_v(x))",
        "q = self.w_q(x)\nreturn self.attend(q, q, self.w_v(x)) + self.w_k.bias",
        "return self.attend(getattr(self, 'w_q')(x), self.w_k(x), self.w_k(x))",
    ],
)
def test_projections_that_are_used_or_shared_are_fine(body: str) -> None:
    assert codes(module(body)) == []


def test_shared_query_and_key_without_an_idle_projection_are_fine() -> None:
    source = module("return self.attend(self.w_q(x), self.w_q(x), self.w_v(x))")
    source = source.replace("self.w_q, self.w_k, self.w_v, self.w_o", "self.w_q, self.w_v, self.w_o")
    assert codes(source.replace("range(4)", "range(3)")) == []


@pytest.mark.parametrize("memory", ["memory", "context", "encoder_hidden_states", "enc_out"])
@pytest.mark.parametrize(
    "body",
    [
        "return self.cross_attn(M, x, x)[0]",
        "y = self.norm(x)\nreturn x + self.cross_attn(M, y, y, need_weights=False)[0]",
        "return self.attend(self.w_q(M), self.w_k(x), self.w_v(x))",
    ],
)
def test_queries_from_the_memory_are_found(body: str, memory: str) -> None:
    (finding,) = lint_source(module(body.replace("M", memory), f"x, {memory}"), "decoder.py")
    assert (finding.code, finding.severity) == ("ATN401", Severity.WARNING)


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        ("return self.cross_attn(x, memory, memory)[0]", "x, memory"),
        ("return self.cross_attn(memory, x, x)[0]", "memory, x"),  # who takes the memory first means it
        ("return self.cross_attn(memory, memory, memory)[0] + x", "x, memory"),
        ("return self.cross_attn(latents, x, x)[0]", "x, latents"),
        ("return self.cross_attn(x, memory, memory)[0], self.self_attn(memory, x, x)[0]", "x, memory"),
        ("return self.attend(self.w_q(x), self.w_k(memory), self.w_v(memory))", "x, memory"),
    ],
)
def test_queries_that_ask_the_memory_and_attention_both_ways_are_fine(body: str, signature: str) -> None:
    assert codes(module(body, signature)) == []


def test_memory_that_must_be_given_and_is_never_read_is_found() -> None:
    body = "x = x + self.self_attn(x, x, x)[0]\nreturn x + self.cross_attn(x, x, x)[0]"
    (finding,) = lint_source(module(body, "x, memory"), "decoder.py")
    assert (finding.code, finding.severity) == ("ATN402", Severity.WARNING)
    assert finding.location.line == module(body).count("\n")


def test_own_attention_of_the_file_that_gets_no_memory_is_found() -> None:
    source = module(f"return self.attend({USES_ALL})")
    decoder = (
        "\n\nclass Decoder(nn.Module):\n    def __init__(self, d, h):\n        super().__init__()\n"
        "        self.cross = DecoderBlock(d, h)\n\n    def forward(self, x, memory):\n        return self.cross(x)\n"
    )
    (finding,) = lint_source(source + decoder, "decoder.py")
    assert (finding.code, finding.location.line) == ("ATN402", (source + decoder).count("\n"))


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        ("return x + self.cross_attn(x, x, x)[0]", "x, memory=None"),
        ("return x + self.cross_attn(x, x, x)[0]", "x, other"),
        ("return x + self.cross_attn(x, x, x)[0] * memory.mean()", "x, memory"),
        ("memory = self.norm(memory)\nreturn self.cross_attn(x, memory, memory)[0]", "x, memory"),
    ],
)
def test_optional_and_read_memories_are_fine(body: str, signature: str) -> None:
    assert codes(module(body, signature)) == []


@pytest.mark.parametrize(
    "body",
    [
        "self.self_attn(x, x, x)\nreturn x",
        "y = self.self_attn(x, x, x)[0]\nreturn self.norm(x)",
        "y, _ = self.self_attn(x, x, x)\ny = self.norm(x)\nreturn y",
        "y, weights = self.self_attn(x, x, x)\nreturn self.norm(x)",
        "if x.size(1) > 1:\n    y = self.self_attn(x, x, x)[0]\nreturn self.norm(x)",
    ],
)
def test_attention_whose_result_nothing_reads_is_found(body: str) -> None:
    assert codes(module(body)) == ["ATN406"]


@pytest.mark.parametrize(
    "body",
    [
        "return x + self.self_attn(x, x, x)[0]",
        "y = self.self_attn(x, x, x)[0]\nreturn x + y",
        "_, weights = self.self_attn(x, x, x)\nreturn weights",
        "self.kept = self.self_attn(x, x, x)[0]\nreturn x",
        "y = x\nfor _ in range(3):\n    x = x + y\n    y = self.self_attn(x, x, x)[0]\nreturn x",
        "y = self.self_attn(x, x, x)[0]\nif x.size(1) > 1:\n    y = x\nreturn y",
        "y = self.self_attn(x, x, x)[0]\ny = self.norm(y)\nreturn y",
        "y = self.self_attn(x, x, x)[0]\ny += x\nreturn y",
        "y = self.self_attn(x, x, x)[0]\nreturn [y for _ in range(2)]",
    ],
)
def test_results_that_may_be_read_are_fine(body: str) -> None:
    assert codes(module(body)) == []


def test_calls_in_scripts_and_tests_are_no_results_that_count() -> None:
    source = HEAD.replace("SIGNATURE", "x") + "        return x + self.self_attn(x, x, x)[0]\n"
    timing = "\n\ndef measure(x):\n    layer = nn.MultiheadAttention(8, 2, batch_first=True)\n    layer(x, x, x)\n"
    assert codes(source + timing) == []


def test_a_memory_that_asks_another_input_than_the_stream_is_fine() -> None:
    body = "y = x + self.cross_attn(memory, prompt, prompt)[0]\nreturn self.norm(y)"
    assert codes(module(body, "x, memory, prompt")) == []


def fused(body: str) -> str:
    return module(body).replace("self.w_q, self.w_k, self.w_v, self.w_o", "self.fused, self.a, self.b, self.c")


CUTS = ["q, k, v = self.fused(x).chunk(3, dim=-1)", "query, key, value = self.fused(x).split(4, -1)"]
MEETS_INPUT = [
    "return (A @ B.transpose(-2, -1) * 0.5).softmax(-1) @ x",
    "w = torch.einsum('bid,bjd->bij', A, B).mul(0.5)\nreturn torch.einsum('bij,bjd->bid', w.softmax(-1), x)",
    "return F.scaled_dot_product_attention(A, B, x)",
]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("core", MEETS_INPUT)
def test_value_that_is_made_and_left_for_the_bare_input_is_found(cut: str, core: str) -> None:
    first, second, third = cut.split(" =")[0].split(", ")
    core = core.replace("A", first).replace("B", second)
    found = lint_source(fused(f"{cut}  # the {third} is last\n{core}"), "decoder.py")
    assert [f.message for f in found if f.code == "ATN403"] == [f"the value is not projected; {third} is never used"]


@pytest.mark.parametrize(
    "body",
    [
        "q, k, v = self.fused(x).chunk(3, dim=-1)\nreturn (q @ k.mT * 0.5).softmax(-1) @ x + v",
        "q, k, v = self.fused(x).chunk(3, dim=-1)\nreturn (q @ k.mT * 0.5).softmax(-1)",  # only the map is wanted
        "q, k, _ = self.fused(x).chunk(3, dim=-1)\nreturn (q @ k.mT * 0.5).softmax(-1) @ x",
        "q, k = self.fused(x).chunk(2, dim=-1)\nreturn (q @ k.mT * 0.5).softmax(-1) @ x",
        "q, k, v = self.fused(x).chunk(3, dim=-1)\nreturn (q @ k.mT * 0.5).softmax(-1) @ v + x",
    ],
)
def test_values_that_are_read_and_maps_without_one_are_fine(body: str) -> None:
    assert "ATN403" not in codes(fused(body))


def test_value_that_is_another_name_of_the_input_may_stay_unread() -> None:
    source = (
        "import torch.nn as nn\nimport torch.nn.functional as F\nfrom torch import einsum\n\n\n"
        "class Consensus(nn.Module):\n    def forward(self, x):\n        d = x.shape[-1]\n"
        "        q, k, v = x, F.normalize(x, dim=-1), {value}\n"
        "        weights = (einsum('b i d, b j d -> b i j', q, k) * d**-0.5).softmax(dim=-1)\n"
        "        return einsum('b i j, b j d -> b i d', weights, x)\n"
    )
    assert codes(source.format(value="x")) == []
    assert codes(source.format(value="x.relu()")) == ["ATN403"]
