"""A softmax that is written out, with and without the row maximum."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source

SOURCE = """\
import torch
from torch import einsum, nn
from torch.nn import functional as F


def probabilities(logits):
    return torch.exp(logits) / torch.exp(logits).sum(-1, keepdim=True)


class Attention(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))
        self.scale = d_model**-0.5

    def forward(self, x, mask=None, top=None):
        q, k, v = self.q(x), self.k(x), self.v(x)
        scores = q @ k.transpose(-2, -1) * self.scale
"""


def found(body: str) -> list[tuple[str, str]]:
    text = SOURCE + "".join(f"        {line}\n" for line in body.splitlines())
    lines = text.splitlines()
    findings = lint_source(text, "attention.py", select=["ATN108"])
    return [(finding.code, lines[finding.location.line - 1].strip()) for finding in findings]


@pytest.mark.parametrize(
    "body",
    [
        "e = torch.exp(scores)\nw = e / e.sum(dim=-1, keepdim=True)\nreturn w @ v",
        "e = scores.exp()\nw = e / e.sum(-1, True)\nreturn torch.bmm(w, v)",
        "e = torch.exp(scores)\nw = e / torch.sum(e, dim=-1, keepdim=True)\nreturn torch.matmul(w, v)",
        "e = torch.exp(scores)\nw = e / (e.sum(-1, keepdim=True) + 1e-9)\nreturn w @ v",
        "e = torch.exp(scores)\nw = e.div(e.sum(-1, keepdim=True))\nreturn w @ v",
        "e = torch.exp(scores) * mask\nnormaliser = e.sum(-1, keepdim=True)\nreturn (e / normaliser) @ v",
        "scores = scores.masked_fill(mask, -1e9)\ne = torch.exp(scores)\nreturn (e @ v) / e.sum(-1, keepdim=True)",
        "e = torch.exp(scores)\nw = e / e.sum(-1, keepdim=True)\nreturn einsum('bij,bjd->bid', w, v)",
        "e = torch.exp(scores)\nw = F.dropout(e / e.sum(-1, keepdim=True), 0.1, self.training)\nreturn w @ v",
    ],
)
def test_exponentials_of_bare_scores_are_found(body: str) -> None:
    line = next(line for line in body.splitlines() if "exp" in line)
    assert found(body) == [("ATN108", line)]


def test_it_may_be_one_expression() -> None:
    body = "w = torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True)\nreturn w @ v"
    assert found(body) == [("ATN108", body.splitlines()[0])]


@pytest.mark.parametrize(
    "body",
    [
        "e = torch.exp(scores - scores.amax(-1, keepdim=True))\nw = e / e.sum(-1, keepdim=True)\nreturn w @ v",
        "e = (scores - top).exp()\nw = e / e.sum(-1, keepdim=True)\nreturn w @ v",
        "e = torch.exp(scores - torch.logsumexp(scores, -1, True))\nw = e / e.sum(-1, keepdim=True)\nreturn w @ v",
        "e = torch.exp(scores.clamp(-10, 10))\nw = e / e.sum(-1, keepdim=True)\nreturn w @ v",
        "e = torch.exp(torch.tanh(scores))\nw = e / e.sum(-1, keepdim=True)\nreturn w @ v",
        "q, k = F.normalize(q), F.normalize(k)\ne = torch.exp(q @ k.mT)\nw = e / e.sum(-1, keepdim=True)\nreturn w @ v",
        "e = torch.exp(scores)\nreturn -torch.log(e.diagonal() / e.sum(-1))",
        "e = torch.exp(scores)\nreturn e @ v",
        "e = torch.exp(q)\nw = e / e.sum(-1, keepdim=True)\nreturn w * v",
        "return scores.softmax(-1) @ v",
    ],
)
def test_scores_that_are_held_back_and_other_exponentials_are_left_alone(body: str) -> None:
    assert found(body) == []


def test_it_is_found_in_a_function() -> None:
    text = "import torch\n\n\ndef attend(query, key, value):\n    e = torch.exp(query @ key.mT)\n"
    findings = lint_source(text + "    return e / e.sum(-1, keepdim=True) @ value\n", "a.py", select=["ATN108"])
    assert [finding.location.line for finding in findings] == [5]
