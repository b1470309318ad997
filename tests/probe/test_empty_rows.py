"""Queries without any key: which rows, gradients and layers are spoilt, and which designs survive."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Finding, Report, Severity
from tests.probe.modules import D, H, later, seeded
from tests.probe.silent_modules import CleanedRows, OpenedRows, Parts

Weigh = Callable[[Tensor, Tensor], Tensor]


def failing(report: Report) -> list[Finding]:
    return [finding for finding in report if finding.fails]


def hidden(mask: Tensor) -> Tensor:
    return mask[:, None, None] | later(mask.shape[1])


class Padded(Parts):
    """Causal attention with a padding mask (True hides); ``weigh(scores, hidden)`` gives the weights."""

    def __init__(self, weigh_: Weigh, causal: bool = True) -> None:
        super().__init__()
        self.weigh_, self.triangular = weigh_, causal

    def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        mask = hidden(key_padding_mask) if self.triangular else key_padding_mask[:, None, None]
        return self.merge(self.weigh_(self.scores(q, k), mask) @ v)


class Stack(nn.Module):
    """Two layers, so that the rows of padded tokens become keys and values."""

    def __init__(self, weigh: Weigh) -> None:
        super().__init__()
        self.first, self.second = Padded(weigh), Padded(weigh)

    def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
        hidden: Tensor = self.second(self.first(x, key_padding_mask), key_padding_mask)
        return hidden


def minus_infinity(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -torch.inf).softmax(-1)


def added(scores: Tensor, mask: Tensor) -> Tensor:
    return (scores + torch.zeros(mask.shape).masked_fill(mask, -torch.inf)).softmax(-1)


def added_and_cleaned(scores: Tensor, mask: Tensor) -> Tensor:
    return added(scores, mask).nan_to_num(0.0)


def filled_and_cleaned(scores: Tensor, mask: Tensor) -> Tensor:
    return minus_infinity(scores, mask).masked_fill(mask.all(-1, keepdim=True), 0.0)


def lowest(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, torch.finfo(scores.dtype).min).softmax(-1)


def guarded(scores: Tensor, mask: Tensor) -> Tensor:
    empty = mask.all(-1, keepdim=True)
    return scores.masked_fill(mask & ~empty, -torch.inf).softmax(-1).masked_fill(empty, 0.0)


@pytest.mark.parametrize("weigh", [minus_infinity, added])
def test_left_padding_spoils_padded_rows(weigh: Weigh) -> None:
    (found,) = failing(attn_guard.check(seeded(Padded, weigh)))
    assert (found.code, found.severity) == ("ATN211", Severity.WARNING)
    assert "padded tokens" in found.found


@pytest.mark.parametrize("weigh", [minus_infinity, added])
def test_a_second_layer_spoils_real_tokens(weigh: Weigh) -> None:
    found = failing(attn_guard.check(seeded(Stack, weigh)))
    assert [(one.code, one.severity, one.found) for one in found] == [("ATN211", Severity.ERROR, "NaN at real tokens")]


def test_a_clean_output_with_a_spoilt_gradient() -> None:
    (found,) = failing(attn_guard.check(seeded(Padded, added_and_cleaned)))
    assert (found.code, found.severity) == ("ATN211", Severity.ERROR)
    assert "gradient" in found.found


@pytest.mark.parametrize("weigh", [lowest, guarded, filled_and_cleaned])
@pytest.mark.parametrize("causal", [True, False])
def test_what_survives(weigh: Weigh, causal: bool) -> None:
    for masks in (None, {"key_padding_mask": "ignore"}):
        report = attn_guard.check(seeded(Padded, weigh, causal), masks=masks)  # type: ignore[arg-type]
        assert list(report) == [], str(report)


@pytest.mark.parametrize("build", [CleanedRows, OpenedRows])
def test_designs_that_clean_or_open_such_rows(build: type[nn.Module]) -> None:
    assert list(attn_guard.check(seeded(build))) == []


def test_a_sample_that_is_all_padding_is_a_remark_where_the_mask_is_declared() -> None:
    module = seeded(Padded, minus_infinity, False)
    assert list(attn_guard.check(module)) == []
    (found,) = attn_guard.check(module, masks={"key_padding_mask": "ignore"})
    assert (found.code, found.severity) == ("ATN211", Severity.INFO)
    assert "all padding" in found.message


def test_fused_attention_and_torchs_own_layers_are_left_alone() -> None:
    class Fused(Parts):
        def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            return self.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=~hidden(key_padding_mask)))

    class BuiltIn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(D, H, batch_first=True)

        def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
            options = {"key_padding_mask": key_padding_mask, "attn_mask": later(x.shape[1])}
            context: Tensor = self.attention(x, x, x, **options)[0]
            return context

    for build in (Fused, BuiltIn):
        for masks in (None, {"key_padding_mask": "ignore"}):
            assert list(attn_guard.check(seeded(build), masks=masks)) == []  # type: ignore[arg-type]
