"""Whole rows of scores or weights that are given a number, which hides no single key."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source
from tests.lint.sources import attention, forward

MASKED = "keep = mask[:, None] & mask[:, :, None]\nscores = scores.masked_fill(~keep, float('-inf'))\n"
PLAIN = "scores = q @ k.transpose(-2, -1) * self.scale\nw = scores.softmax(dim=-1)\n"
MERGED = "\nreturn self.o((w @ v).transpose(1, 2).reshape(b, t, -1))"


def failing(source: str) -> list[str]:
    return [finding.code for finding in lint_source(source, "attention.py") if finding.fails]


@pytest.mark.parametrize(
    "empty",
    [
        "~keep.any(dim=-1, keepdim=True)",
        "~torch.any(keep, dim=-1, keepdim=True)",
        "(~keep).all(-1, keepdim=True)",
        "keep.logical_not().all(dim=-1).unsqueeze(-1)",
        "keep.sum(-1, keepdim=True) == 0",
        "keep.sum(dim=-1, keepdim=True).eq(0)",
        "torch.isinf(scores).all(-1, keepdim=True)",
        "(scores == float('-inf')).all(dim=-1, keepdim=True)",
        "(~mask).all(dim=-1)[:, None, None, None]",
        "(mask == 0).all(dim=-1).view(b, 1, 1, 1)",
        "~keep.any(-1)[..., None].expand_as(scores)",
        "1 - (keep.sum(-1, keepdim=True) > 0).to(scores.dtype)",
    ],
)
@pytest.mark.parametrize("name", ["empty", "all_masked"])
@pytest.mark.parametrize(
    "change",
    [
        "scores = scores.masked_fill({empty}, 0.0)",
        "scores.masked_fill_({empty}, 0)",
        "scores = torch.where({empty}, 0.0, scores)",
        "scores = torch.where({empty}, torch.zeros_like(scores), scores)",
        "scores[{empty}] = 0.0",
    ],
)
def test_rows_without_a_key_are_given_a_number(empty: str, name: str, change: str) -> None:
    assert failing(attention(then=f"{MASKED}{name} = {empty}\n{change.format(empty=name)}")) == []


@pytest.mark.parametrize("change", ["w = w.masked_fill({empty}, 0.0)", "w = w * ~{empty}", "w[{empty}] = 0.0"])
@pytest.mark.parametrize("name", ["empty", "all_masked"])
def test_rows_of_weights_are_given_a_number(change: str, name: str) -> None:
    empty = f"{name} = ~mask[:, None].any(-1, keepdim=True)\n"
    assert failing(forward(PLAIN + empty + change.format(empty=name) + MERGED)) == []


@pytest.mark.parametrize(
    "change",
    [
        "w = w.masked_fill(torch.isnan(w), 0.0)",
        "w = torch.where(torch.isnan(w), torch.zeros_like(w), w)",
        "w[torch.isnan(w)] = 0.0",
        "w = w.masked_fill(w.isnan(), 0.0)",
    ],
)
def test_rows_of_nan_are_given_a_number(change: str) -> None:
    assert failing(forward(PLAIN + change + MERGED)) == []


@pytest.mark.parametrize(
    "gate",
    [
        "entropy = -(w * torch.log(w + 1e-9)).sum(-1)\nmask = (entropy > 0.7 * entropy.max()).float().unsqueeze(-1)",
        "entropy = -torch.sum(w * w.log(), dim=-1, keepdim=True)\nmask = torch.sigmoid(1 - entropy / math.log(t))",
        "mask = w.amax(-1, keepdim=True) > 0.5",
        "sure_mask = (w.amax(-1) > 0.5).float()\nmask = sure_mask.unsqueeze(-1)",
        "sure_mask = w.amax(-1) > 0.5\nmask = sure_mask[..., None]",
        "mask = (w * w).sum(dim=3, keepdim=True) < 0.1",
    ],
)
@pytest.mark.parametrize("change", ["w = w * mask", "w = w.masked_fill(mask == 0, 0.0)", "w = torch.where(mask, w, 0)"])
def test_rows_are_weighed_by_how_sure_they_are(gate: str, change: str) -> None:
    assert failing(forward(f"{PLAIN}{gate}\n{change}{MERGED}")) == []


@pytest.mark.parametrize(
    "hidden",
    [
        "~keep.any(dim=-2, keepdim=True)",  # of the queries
        "(x == 0).all(-1)[:, None, None, :]",  # of the features
        "(x == 0).all(-1)[:, None, None]",
        "(x == 0).all(-1)[:, None].unsqueeze(1)",
        "torch.isnan(x[..., 0])[:, None, None, :]",  # what is missing in a series
        "(x == 0).all(-1, keepdim=True).transpose(-2, -1)",
        "~mask",
        "keep == 0",
    ],
)
@pytest.mark.parametrize("change", ["scores = scores.masked_fill(hidden, 0.0)", "scores[hidden] = 0.0"])
def test_keys_that_are_given_a_number_are_found(hidden: str, change: str) -> None:
    keep = "keep = mask[:, None] & mask[:, :, None]\n"
    assert failing(attention(then=f"{keep}hidden = {hidden}\n{change}")) == ["ATN203"]


@pytest.mark.parametrize(
    "hidden",
    [
        "~mask",
        "~mask.any(dim=-2, keepdim=True)",
        "(x == 0).all(-1)[:, None, None, :]",
        "(w.amax(-1) < 0.5).unsqueeze(-2)",
    ],
)
def test_keys_that_are_hidden_after_the_softmax_are_found(hidden: str) -> None:
    assert failing(forward(f"{PLAIN}w = w.masked_fill({hidden}, 0.0){MERGED}")) == ["ATN201"]


@pytest.mark.parametrize(
    ("then", "codes"), [("", ["ATN215"]), ("w = w.masked_fill(~below.any(-1, keepdim=True), 0.0)", [])]
)
def test_own_keys_may_be_hidden_where_rows_without_keys_are_zeroed(then: str, codes: list[str]) -> None:
    below = "below = torch.ones(t, t, dtype=torch.bool, device=x.device).tril(-1)\n"
    masked = PLAIN.replace("w =", f"{below}scores = scores.masked_fill(~below, float('-inf'))\nw =")
    assert failing(forward(masked + then + MERGED)) == codes
