"""How many softmaxes stand between scores and value, and what happens to the weights that are returned."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source
from tests.lint.sources import forward

SCORES = "scores = q @ k.mT * self.scale\n"
WEIGHTS = "weights = self.softmax(q @ k.mT * self.scale)\n"


def codes(body: str) -> list[str]:
    return [finding.code for finding in lint_source(forward(body), "attention.py")]


@pytest.mark.parametrize(
    "body",
    [
        WEIGHTS + "return weights.softmax(dim=-1) @ v",
        WEIGHTS + "return F.softmax(weights, dim=3) @ v",
        WEIGHTS + "return torch.softmax(self.drop(weights), dim=-1) @ v",
        WEIGHTS + "weights = weights.masked_fill(mask, 0.0)\nreturn self.softmax(weights.float()) @ v",
        "return self.softmax(self.softmax(q @ k.mT * self.scale)) @ v",
    ],
)
def test_a_softmax_of_weights_is_found(body: str) -> None:
    (finding,) = [found for found in lint_source(forward(body), "attention.py") if found.code != "ATN201"]
    assert (finding.code, finding.related[0][1]) == ("ATN106", "the first softmax")


@pytest.mark.parametrize(
    "body",
    [
        WEIGHTS + "return torch.log(weights).softmax(dim=-1) @ v",
        WEIGHTS + "return (weights / 0.5).softmax(dim=-1) @ v",
        WEIGHTS + "return sharpen(weights).softmax(dim=-1) @ v",
        # along both axes, as in matching, where neither repeats the other
        WEIGHTS + "return weights @ v, weights.softmax(dim=-2)",
        # over another tensor: routing, classification
        WEIGHTS + "return self.o(weights @ v).softmax(dim=-1)",
        WEIGHTS + "return weights @ v, self.router(x).softmax(dim=-1).topk(2)[0].softmax(dim=-1)",
    ],
)
def test_a_softmax_of_something_else_is_left_alone(body: str) -> None:
    assert codes(body) == []


def test_a_softmax_that_stands_alone_is_found() -> None:
    assert codes(SCORES + "F.softmax(scores, dim=-1)\nreturn scores @ v") == ["ATN106"]


@pytest.mark.parametrize(
    "scores",
    ["scores.masked_fill(mask, -torch.inf)", "scores + (1.0 - mask) * -1e9", "scores.masked_fill(mask, -1e9) * 1.0"],
)
def test_masked_scores_that_meet_the_value_are_found(scores: str) -> None:
    (finding,) = lint_source(forward(f"{SCORES}scores = {scores}\nreturn scores @ v, self.softmax(x)"), "attention.py")
    assert (finding.code, finding.related[0][1]) == ("ATN106", "blocked scores are this large")


@pytest.mark.parametrize(
    "body",
    [
        # linear attention, decay, and what stands in for a softmax
        "return q @ (k.mT @ v), self.softmax(x)",
        SCORES + "return scores.tril() @ v, self.softmax(x)",
        SCORES + "return torch.sigmoid(scores.masked_fill(mask, -torch.inf)) @ v, self.softmax(x)",
        SCORES + "return F.relu(scores.masked_fill(mask, -torch.inf)) @ v, self.softmax(x)",
        SCORES + "return entmax(scores.masked_fill(mask, -torch.inf)) @ v, self.softmax(x)",
    ],
)
def test_attention_with_something_in_the_place_of_the_softmax_is_left_alone(body: str) -> None:
    assert "ATN106" not in codes(body)


@pytest.mark.parametrize(
    "body",
    [
        WEIGHTS + "weights = self.drop(weights)\nreturn self.o(weights @ v), weights",
        WEIGHTS + "weights = F.dropout(weights, 0.1, self.training)\nout = weights @ v\nreturn out, weights",
    ],
)
def test_returned_weights_that_carry_dropout_are_found(body: str) -> None:
    assert codes(body) == ["ATN602"]


@pytest.mark.parametrize(
    "body",
    [
        WEIGHTS + "return self.o(self.drop(weights) @ v), weights",
        WEIGHTS + "return self.o(self.drop(weights) @ v)",
        WEIGHTS + "return self.drop(weights)",
    ],
)
def test_weights_as_the_softmax_gave_them_are_left_alone(body: str) -> None:
    assert codes(body) == []
