"""Modules of which one of several is used, and helpers that change what they are given in place."""

from __future__ import annotations

import textwrap

import pytest

from attn_guard.lint.run import lint_source
from tests.lint.sources import attention, forward
from tests.lint.test_masks import codes

CHOSEN = """\
import torch
import torch.nn as nn
import torch.nn.functional as F


class Dot(nn.Module):
    def __init__(self, normalise=True):
        super().__init__()
        self.normalise = normalise

    def forward(self, query, x):
        scores = torch.bmm(query, x.transpose(1, 2)) * query.size(-1) ** -0.5
        if self.normalise:
            scores = F.softmax(scores, dim=-1)
        return scores, x


class Cosine(nn.Module):
    def forward(self, query, x):
        scores = torch.bmm(F.normalize(query, dim=-1), F.normalize(x, dim=-1).transpose(1, 2)) * 10.0
        return F.softmax(scores, dim=-1), x


class Pick(nn.Module):
    def forward(self, x, weights):
        return x[torch.arange(len(x)), weights.argmax(-1)]


class Average(nn.Module):
    def forward(self, x, weights):
        return torch.bmm(weights, x)


class Align(nn.Module):
    def __init__(self, kind, pick):
        super().__init__()
        if kind == "dot":
            self.weigh = {dot}
        elif kind == "cosine":
            self.weigh = Cosine()
        else:
            raise ValueError(kind)
        self.apply = Pick() if pick else Average()

    def hide(self, weights, lengths):
        keep = torch.arange(weights.size(2))[None, :] < lengths[:, None]
        {change}

    def forward(self, query, x, lengths):
        weights, x = self.weigh(query, x)
        {call}
        return self.apply(x, weights)
"""
CHANGE = 'weights[~keep.unsqueeze(1).expand_as(weights)] = float("-inf")'


def chosen(dot: str = "Dot()", change: str = CHANGE, call: str = "self.hide(weights, lengths)") -> list[str]:
    source = CHOSEN.format(dot=dot, change=change, call=textwrap.indent(call, " " * 8).strip())
    return [finding.code for finding in lint_source(source, "align.py")]


@pytest.mark.parametrize(
    ("change", "call"),
    [
        (CHANGE, "self.hide(weights, lengths)"),
        (CHANGE, "self.hide(lengths=lengths, weights=weights)"),
        ("weights.masked_fill_(~keep[:, None], -torch.inf)", "self.hide(weights, lengths)"),
        ("weights.mul_(keep_mask)", "self.hide(weights, lengths)"),
    ],
)
def test_mask_that_a_helper_writes_into_weights_of_another_module_is_found(change: str, call: str) -> None:
    assert chosen(change=change, call=call) == ["ATN201"]


@pytest.mark.parametrize(
    ("change", "call"),
    [
        ("return keep", "self.hide(weights, lengths)"),
        (f"weights = weights.clone()\n        {CHANGE}", "self.hide(weights, lengths)"),  # the caller's are as before
        (CHANGE, "self.hide(weights.clone(), lengths)"),
    ],
)
def test_what_a_helper_does_to_something_of_its_own_changes_nothing(change: str, call: str) -> None:
    assert chosen(change=change, call=call) == []


def test_scores_that_become_weights_after_the_mask_are_fine() -> None:
    source = CHOSEN.format(dot="Dot(normalise=False)", change=CHANGE, call="self.hide(weights, lengths)")
    source = source.replace('elif kind == "cosine":\n            self.weigh = Cosine()\n        ', "")
    source = source.replace("self.apply(x, weights)", "self.apply(x, weights.softmax(-1))")
    assert lint_source(source, "align.py").findings == ()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("scores.masked_fill_(mask == 0, 1e-9)", ["ATN203"]),
        ("scores[mask == 0] = -1e9", []),
        ("scores = scores.masked_fill(mask == 0, 1e-9)", []),  # of which the caller sees nothing
    ],
)
def test_mask_that_a_helper_puts_on_the_scores_is_read(body: str, expected: list[str]) -> None:
    source = attention(then="self.hide(scores, mask)")
    helper = f"    def hide(self, scores, mask):\n        {body}\n\n    def forward"
    assert codes(source.replace("    def forward", helper)) == expected


def test_one_of_two_modules_is_read_with_either() -> None:
    block = """
    return self.o(self.attend(q, k, v))
    """
    source = forward(block).replace(
        "        self.scale =",
        "        self.attend = Plain() if heads > 1 else Fused()\n        self.scale =",
    )
    plain = "class Plain(nn.Module):\n    def forward(self, q, k, v):\n        return (q @ k.mT).softmax(-1) @ v\n\n\n"
    fused = "class Fused(nn.Module):\n    def forward(self, q, k, v):\n"
    fused += "        return F.scaled_dot_product_attention(q, k, v)\n\n\n"
    assert codes(source.replace("class Attention", f"{plain}{fused}class Attention")) == ["ATN101"]


HELPERS = """\
from functools import partial
from torch.utils.checkpoint import checkpoint


def l2norm(t):
    return F.normalize(t, dim=-1)


"""
ATTEND = """\
def attend(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.finfo(scores.dtype).max)
    return scores.softmax(dim=-1) @ v


def attend_in_pieces(q, k, v, mask=None):
    return torch.cat([attend(part, k, v, mask) for part in q.split(64, dim=-2)], dim=-2)


class Attention(nn.Module):
"""
METHOD = """\
class Attention(nn.Module):
    def attend(self, q, k, v):
        return (q @ k.transpose(-2, -1)).softmax(dim=-1) @ v

"""
CALLS = [
    (ATTEND, "attend(q, k, v, mask)"),
    (ATTEND, "(attend if mask is None else attend_in_pieces)(q, k, v, mask)"),
    (ATTEND, "checkpoint(attend, q, k, v, mask, use_reentrant=False)"),
    (ATTEND, "torch.utils.checkpoint.checkpoint(attend, q, k, v)"),
    (METHOD, "checkpoint(self.attend, q, k, v)"),
    (METHOD, "torch.utils.checkpoint.checkpoint(self.attend, q, k, v, use_reentrant=False)"),
]


def handed(then: str, helper: str, call: str) -> list[str]:
    source = forward(f"{then}\nout = {call}\nreturn self.o(out.transpose(1, 2).reshape(b, t, -1))")
    return codes(source.replace("class Attention(nn.Module):\n", HELPERS + helper))


@pytest.mark.parametrize(("helper", "call"), CALLS)
@pytest.mark.parametrize(
    "then",
    [
        "q = q * self.scale",
        "q, k = map(l2norm, (q, k))",
        "q, k = tuple(map(lambda t: l2norm(t), (q, k)))",
        "q, k = [l2norm(t) for t in (q, k)]",
        "q, k = map(l2norm if b > 1 else torch.clone, (q, k))",
        "q, k = map(partial(F.normalize, dim=-1), (q, k))",
        "qn, kn = map(lambda t: t.norm(dim=-1, keepdim=True), (q, k))\nq, k = q / qn, k / kn",
    ],
)
def test_scale_before_a_function_that_is_chosen_or_handed_on_counts(then: str, helper: str, call: str) -> None:
    assert handed(then, helper, call) == []


@pytest.mark.parametrize(("helper", "call"), CALLS)
@pytest.mark.parametrize("then", ["", "q, k = map(lambda t: t.contiguous(), (q, k))"])
def test_scale_that_is_missing_before_such_a_function_is_found(then: str, helper: str, call: str) -> None:
    assert handed(then, helper, call) == ["ATN101"]


def test_chosen_function_may_stand_under_a_name_of_its_own() -> None:
    chosen = "attention = attend if b > 1 else attend_in_pieces\n"
    call = "attention(q, k, v, mask=mask)"
    assert handed(f"{chosen}q, k = map(l2norm, (q, k))", ATTEND, call) == []
    assert handed(chosen, ATTEND, call) == ["ATN101"]
