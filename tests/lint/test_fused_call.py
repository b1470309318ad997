"""Attention written step by step that one fused call computes."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source
from tests.lint.sources import forward


def calls(body: str) -> list[str]:
    return [finding.help for finding in lint_source(forward(body), "attention.py", select=["ATN801"])]


@pytest.mark.parametrize(
    ("body", "call"),
    [
        ("return (q @ k.transpose(-2, -1) * self.scale).softmax(-1) @ v", "q, k, v"),
        ("s = q @ k.mT * self.head_dim**-0.5\nreturn F.softmax(s, dim=-1) @ v", "q, k, v"),
        (
            "s = (q @ k.mT * self.scale).masked_fill(mask == 0, -1e9)\nreturn s.softmax(-1) @ v",
            "q, k, v, attn_mask=mask != 0",
        ),
        (
            "w = (q @ k.mT * self.scale).softmax(-1)\nreturn self.drop(w) @ v",
            "q, k, v, dropout_p=self.drop.p if self.training else 0.0",
        ),
    ],
)
def test_the_call_is_spelled_out(body: str, call: str) -> None:
    assert calls(body) == [f"call F.scaled_dot_product_attention({call})"]


@pytest.mark.parametrize(
    "body",
    [
        "w = (q @ k.mT * self.scale).softmax(-1)\nreturn w @ v, w",
        "w = (q @ k.mT * self.scale).softmax(-1)\nself.seen = w\nreturn w @ v",
        "return (q @ k.mT).softmax(-1) @ v",
        "q = q * self.scale\nreturn (q @ k.mT).softmax(-1) @ v",
        "s = q @ k.mT * self.scale + self.bias\nreturn s.softmax(-1) @ v",
        "s = torch.tanh(q @ k.mT * self.scale)\nreturn s.softmax(-1) @ v",
        "w = (q @ k.mT * self.scale).softmax(-1)\nreturn (w / w.sum(-1, keepdim=True)) @ v",
        "w = (q @ k.mT * self.scale).softmax(-2)\nreturn w @ v",
        "s = (q @ k.mT * self.scale).masked_fill(mask, 0.0)\nreturn s.softmax(-1) @ v",
        "s = (q @ k.mT * self.scale).masked_fill(mask == 0, -1e9)\nreturn s.masked_fill(mask, -1e9).softmax(-1) @ v",
        "return F.scaled_dot_product_attention(q, k, v)",
        "if self.flash:\n    return x\nreturn (q @ k.mT * self.scale).softmax(-1) @ v",
    ],
)
def test_what_the_fused_call_cannot_give_is_left_alone(body: str) -> None:
    assert calls(body) == []


def test_it_is_advice_and_given_on_request_only() -> None:
    source = forward("return (q @ k.transpose(-2, -1) * self.scale).softmax(-1) @ v")
    assert "ATN801" not in {finding.code for finding in lint_source(source, "attention.py", preview=True)}
