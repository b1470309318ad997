"""Attention without a query: logits of each position that are multiplied by a mask, which leaves them at 0."""

from __future__ import annotations

import textwrap

import pytest

from attn_guard.lint.run import lint_source

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F


class Pooling(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.attention = nn.Sequential(nn.Linear(d_model, 64), nn.Tanh(), nn.Linear(64, 1))
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x, mask):
        logits = self.attention(x).squeeze(-1)
"""


def found(body: str) -> list[tuple[str, str]]:
    source = HEAD + textwrap.indent(textwrap.dedent(body).strip("\n") + "\n", " " * 8)
    lines = source.splitlines()
    return [(f.code, lines[f.location.line - 1].strip()) for f in lint_source(source, "pooling.py")]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            "logits = logits * mask\nweights = F.softmax(logits, dim=-1)\nreturn (x * weights.unsqueeze(-1)).sum(1)",
            "logits = logits * mask",
        ),
        (
            "weights = torch.softmax(logits * mask.float(), 1)\nreturn torch.bmm(weights.unsqueeze(1), x).squeeze(1)",
            "weights = torch.softmax(logits * mask.float(), 1)",
        ),
        ("logits *= mask\nreturn torch.einsum('bt,btd->bd', logits.softmax(-1), x)", "logits *= mask"),
        (
            "logits = torch.mul(logits, mask)\nweights = self.softmax(logits)[..., None]\nreturn (weights * x).sum(1)",
            "logits = torch.mul(logits, mask)",
        ),
        (
            "if mask is not None:\n    logits = mask * logits\n"
            "weights = F.softmax(logits, -1)\nreturn weights[:, None] @ x",
            "logits = mask * logits",
        ),
    ],
)
def test_product_with_a_mask_before_the_softmax_is_found(body: str, line: str) -> None:
    assert found(body) == [("ATN203", line)]


@pytest.mark.parametrize(
    "body",
    [
        "logits = logits.masked_fill(~mask, -torch.inf)\nreturn (x * logits.softmax(-1).unsqueeze(-1)).sum(1)",
        "logits = logits * mask + (1 - mask) * -1e9\nreturn (x * logits.softmax(-1).unsqueeze(-1)).sum(1)",
        "logits = (logits * mask).masked_fill(mask == 0, -1e9)\nreturn (x * logits.softmax(-1).unsqueeze(-1)).sum(1)",
        "logits = logits * mask\nlogits[mask == 0] = -1e9\nreturn (x * logits.softmax(-1).unsqueeze(-1)).sum(1)",
        "if mask is not None:\n    logits = logits * mask\nif self.soft:\n"
        "    if mask is not None:\n        logits += -1e9 * (1 - mask)\n"
        "    logits = logits.softmax(-1)\nreturn (x * logits.unsqueeze(-1)).sum(1)",
        "if mask is not None:\n    logits = logits * mask\nif mask is not None:\n"
        "    logits = logits.masked_fill(mask == 0, -1e9)\nreturn (x * logits.softmax(-1).unsqueeze(-1)).sum(1)",
        # masked once more and normalised: right, if not as precise
        "w = F.softmax(logits * mask, -1) * mask\nw = w / w.sum(-1, keepdim=True)\nreturn (x * w.unsqueeze(-1)).sum(1)",
        # nothing is weighed
        "return F.softmax(logits * mask, dim=-1)",
        "return F.log_softmax(logits * mask, dim=-1) * x",
        # features, and no logits
        "x = x * mask.unsqueeze(-1)\nreturn (x * self.attention(x).softmax(1)).sum(1)",
        "logits = logits * self.scale_mask_heads\nreturn (x * logits.softmax(-1).unsqueeze(-1)).sum(1)",
    ],
)
def test_masks_that_hide_and_other_products_are_fine(body: str) -> None:
    assert found(body) == []
