"""Dropout that an attention class keeps and never applies."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source

SOURCE = """\
import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, d_model, dropout=0.1, config=None):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))
        self.scale = d_model**-0.5
        {kept}

    def forward(self, x):
        weights = (self.q(x) @ self.k(x).mT * self.scale).softmax(-1)
        {used}
        return weights @ self.v(x)
{after}
"""
APPLIED = "weights = self.drop(weights)"


def source(kept: str, used: str = "pass", after: str = "") -> str:
    return SOURCE.format(kept=kept, used=used, after=after)


def found(text: str) -> list[tuple[str, int]]:
    findings = lint_source(text, "attention.py", select=["ATN504"])
    return [(finding.code, finding.location.line) for finding in findings]


@pytest.mark.parametrize(
    "kept",
    [
        "self.drop = nn.Dropout(dropout)",
        "self.drop = torch.nn.Dropout(p=0.1, inplace=True)",
        "self.drop: nn.Module = nn.Dropout(dropout) if dropout else nn.Identity()",
        "self.attn_dropout = dropout",
        "self.dropout_p = config.attention_dropout",
        "self.layer = nn.AlphaDropout(dropout)",
    ],
)
def test_dropout_that_nothing_reads_is_found(kept: str) -> None:
    assert found(source(kept)) == [("ATN504", 11)]


@pytest.mark.parametrize(
    "used",
    [
        "# weights = self.drop(weights)",
        "x = F.relu(weights)  # TODO: self.drop",
        "self.drop = nn.Identity()",
    ],
)
def test_a_comment_or_another_value_does_not_read_it(used: str) -> None:
    assert found(source("self.drop = nn.Dropout(dropout)", used)) == [("ATN504", 11)]


def test_the_layer_of_the_same_name_in_a_class_beside_it_is_another_one() -> None:
    other = "\n\nclass Other(nn.Module):\n    def forward(self, x):\n        return self.drop(x)\n"
    assert found(source("self.drop = nn.Dropout(dropout)", after=other)) == [("ATN504", 11)]


def test_dropout_of_the_fused_call_counts_as_well() -> None:
    text = source("self.dropout = dropout", "return F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x))")
    assert found(text) == [("ATN504", 11)]


@pytest.mark.parametrize(
    ("kept", "used"),
    [
        ("self.drop = nn.Dropout(dropout)", APPLIED),
        ("self.drop = nn.Dropout(dropout)", "weights = F.dropout(weights, self.drop.p, self.training)"),
        ("self.drop = nn.Dropout(dropout)", "weights = getattr(self, 'dr' + 'op')(weights)"),
        ("self.drop = nn.Dropout(dropout)", "weights = apply(self, weights)"),
        ("self.drop = nn.Dropout(dropout)", "weights = apply(module=self, weights=weights)"),
        ("self.drop = nn.Dropout(dropout)\n        self.both = nn.Sequential(nn.Linear(4, 4), self.drop)", "pass"),
        ("self.rate = dropout\n        self.drop = nn.Dropout(dropout)", APPLIED),
        ("self.dropout = dropout\n        self.drop = nn.Dropout(self.dropout)", APPLIED),
        ("self.dropout = dropout\n        self.drop = nn.Dropout(dropout)", APPLIED),
        ("self.drop_path = dropout", "pass"),
        ("self.dropout = 0.0", "pass"),
        ("self.dropout = None", "pass"),
    ],
)
def test_dropout_that_may_be_read_is_left_alone(kept: str, used: str) -> None:
    assert found(source(kept, used)) == []


@pytest.mark.parametrize(
    "after",
    [
        "\n\nclass Heir(Attention):\n    def forward(self, x):\n        return self.drop(x)\n",
        "\n\nclass Block(nn.Module):\n    def forward(self, x):\n        return self.attention.drop(x)\n",
        "\n\ndef attend(module, x):\n    return module.drop(x)\n",
        "\n\ndef attend(module, x):\n    return operator.attrgetter('drop')(module)(x)\n",
        "\n\nclass Heir(Attention, Mixin):\n    pass\n",
    ],
)
def test_readers_elsewhere_in_the_file_and_bases_out_of_sight_count(after: str) -> None:
    assert found(source("self.drop = nn.Dropout(dropout)", after=after)) == []


def test_a_base_from_another_file_may_read_it() -> None:
    text = source("self.drop = nn.Dropout(dropout)").replace("Attention(nn.Module)", "Attention(BaseAttention)")
    assert found(text) == []


def test_a_class_without_attention_is_left_alone() -> None:
    text = source("self.drop = nn.Dropout(dropout)")
    assert found(text.replace(" @ self.v(x)", "").replace(" @ self.k(x).mT", "")) == []


def test_the_softmax_may_stand_in_a_method_beside_forward() -> None:
    text = source("self.drop = nn.Dropout(dropout)", "return self.attend(x)")
    method = "\n    def attend(self, x):\n        scores = self.q(x) @ self.k(x).mT * self.scale\n"
    method += "        return scores.softmax(-1) @ self.v(x)\n"
    assert found(text.replace("weights = (self.q(x) @ self.k(x).mT * self.scale).softmax(-1)", "") + method) == [
        ("ATN504", 11)
    ]
