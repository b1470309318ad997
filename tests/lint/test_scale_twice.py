"""A scale that is applied twice, upside down, or only after the softmax."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source
from tests.lint.sources import attention, forward


def codes(source: str) -> list[str]:
    return [finding.code for finding in lint_source(source, "attention.py")]


@pytest.mark.parametrize(
    "body",
    [
        "return self.o(F.scaled_dot_product_attention(q * self.scale, k, v))",
        "q = q / math.sqrt(self.head_dim)\nreturn F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        "q *= self.scale\nreturn F.scaled_dot_product_attention(q, k, v, scale=self.scale)",
        "k = k * k.shape[-1] ** -0.5\nreturn F.scaled_dot_product_attention(q, k, v)",
        "return ((q * self.scale) @ k.mT * self.scale).softmax(-1) @ v",
        "scores = q @ k.mT / math.sqrt(self.head_dim)\nreturn self.softmax(scores / self.head_dim ** 0.5) @ v",
        "scores = einsum('bhid,bhjd->bhij', q * self.scale, k)\nreturn self.softmax(scores * self.scale) @ v",
        "q = torch.mul(q, self.scale)\nreturn self.softmax(torch.matmul(q, k.mT).div(self.head_dim ** 0.5)) @ v",
    ],
)
def test_a_second_scale_is_found(body: str) -> None:
    assert codes(forward(body)) == ["ATN103"]


@pytest.mark.parametrize(
    "keys",
    [
        "k = k * self.scale + v",
        "k = v + k / math.sqrt(self.head_dim)",
        "shifted = k * self.scale\nk = F.softsign(k) + v\nk = shifted + k",
    ],
)
def test_scale_of_one_part_of_a_sum_is_not_one_of_the_sum(keys: str) -> None:
    assert codes(forward(f"{keys}\nreturn (q @ k.mT * self.scale).softmax(-1) @ v")) == []


@pytest.mark.parametrize(
    "queries",
    ["q = q * self.scale\nq = q * q.cos() + q.flip(-1) * q.sin()", "q = q * self.scale + q * self.scale"],
)
def test_scale_of_both_parts_of_a_sum_is_one_of_the_sum(queries: str) -> None:
    assert codes(forward(f"{queries}\nreturn F.scaled_dot_product_attention(q, k, v)")) == ["ATN103"]


def test_both_scales_are_shown() -> None:
    source = forward("q = q * self.scale\nreturn F.scaled_dot_product_attention(q, k, v)")
    (finding,) = lint_source(source, "attention.py")
    (second, label) = finding.related[0]
    assert (second.line - finding.location.line, label) == (1, "scaled once more")
    assert (finding.expected, finding.found) == ("head_dim**-0.5", "head_dim**-1")


@pytest.mark.parametrize(
    "scores", ["q @ k.mT / self.scale", "(q / self.scale) @ k.mT", "torch.div(q @ k.mT, self.head_dim ** -0.5)"]
)
def test_division_by_the_inverse_is_found(scores: str) -> None:
    (finding,) = lint_source(attention(scores), "attention.py")
    assert (finding.code, finding.found) == ("ATN103", "head_dim**0.5")
    assert "inverse already" in finding.message


@pytest.mark.parametrize(
    "body",
    [
        "return F.scaled_dot_product_attention(q * self.scale, k, v, scale=1.0)",
        "return F.scaled_dot_product_attention(q, k, v, scale=self.scale)",
        "return F.scaled_dot_product_attention(q * math.sqrt(self.head_dim) * self.scale, k, v)",
        "q, k = q * self.head_dim ** -0.25, k * self.head_dim ** -0.25\nreturn self.softmax(q @ k.mT) @ v",
        "return F.scaled_dot_product_attention(self.norm(q) * self.scale, self.norm(k), v)",
        "return F.scaled_dot_product_attention(q * self.temperature, k, v)",
        # each branch scales once
        """
if t > 8:
    return F.scaled_dot_product_attention(q, k, v)
return self.softmax(q * self.scale @ k.mT) @ v
""",
        """
scores = q @ k.mT
if t > 8:
    scores = scores * self.scale
else:
    scores = scores / math.sqrt(self.head_dim)
return self.softmax(scores) @ v
""",
    ],
)
def test_one_scale_in_several_places_is_left_alone(body: str) -> None:
    assert codes(forward(body)) == []


@pytest.mark.parametrize(
    "body",
    [
        "return (q @ k.mT).softmax(-1) / math.sqrt(self.head_dim) @ v",
        "weights = F.softmax(q @ k.mT, dim=-1) * self.scale\nreturn weights @ v",
        "weights = self.softmax(q @ k.mT) / self.d_model ** 0.5\nreturn self.drop(weights) @ v",
        "weights = self.softmax(q @ k.mT)\nreturn weights @ v * self.scale",
        "weights = self.softmax(q @ k.mT)\nweights *= self.scale\nreturn einsum('bhij,bhjd->bhid', weights, v)",
    ],
)
def test_a_scale_after_the_softmax_is_found_and_not_said_to_be_missing(body: str) -> None:
    assert codes(forward(body)) == ["ATN105"]


@pytest.mark.parametrize(
    "body",
    [
        "return self.softmax(q @ k.mT * self.scale) * self.scale @ v",
        "return self.softmax(q @ k.mT * self.scale) / math.sqrt(self.head_dim) @ v",
        "return self.softmax(apply(q @ k.mT)) * self.scale @ v",
        "return self.softmax(self.norm(q) @ self.norm(k).mT) * self.scale @ v",
        "return self.softmax(q @ k.mT * self.scale) / t @ v",
    ],
)
def test_factors_on_the_weights_of_scaled_or_unknown_scores_are_left_alone(body: str) -> None:
    assert codes(forward(body)) == []


def test_the_inverse_of_a_width_without_a_name_is_found_behind_named_axes() -> None:
    source = """
import torch
from einops import rearrange
from torch import nn
class Attention(nn.Module):
    def __init__(self, q_dim, kv_dim, qk_out_dim=None, num_heads=1):
        super().__init__()
        if qk_out_dim is None:
            qk_out_dim = q_dim
        self.qk_width = qk_out_dim // num_heads
        self.q, self.k, self.v = (nn.Linear(d, qk_out_dim) for d in (q_dim, kv_dim, kv_dim))
        self.scale = self.qk_width ** -0.5
    def forward(self, x, y):
        q, k, v = (rearrange(p, "b s (n h) -> b n s h", h=self.qk_width) for p in (self.q(x), self.k(y), self.v(y)))
        return (q @ k.transpose(-2, -1) OPERATOR self.scale).softmax(dim=-1) @ v
"""
    assert codes(source.replace("OPERATOR", "/")) == ["ATN103"]
    assert codes(source.replace("OPERATOR", "*")) == []
