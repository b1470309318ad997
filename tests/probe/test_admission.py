"""Padding that attention lets in, and padding that comes in another way."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Severity
from tests.probe.modules import D, later, seeded
from tests.probe.silent_modules import Parts


class Padded(Parts):
    """Self-attention that hides padded keys, later keys, or both."""

    def __init__(self, hides_pads: bool, causal: bool) -> None:
        super().__init__()
        self.hides_pads, self.looks_back = hides_pads, causal

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        scores = self.scores(q, k)
        if self.looks_back:
            scores = scores.masked_fill(later(x.shape[1]), -torch.inf)
        if key_padding_mask is not None and self.hides_pads:
            scores = scores.masked_fill(key_padding_mask[:, None, None, :], torch.finfo(x.dtype).min)
        return self.merge(scores.softmax(-1) @ v)


class Blurred(Padded):
    """A convolution over time before attention that hides padded keys."""

    def __init__(self, hides_pads: bool = True, causal: bool = False) -> None:
        super().__init__(hides_pads, causal)
        self.blur = nn.Conv1d(D, D, 3, padding=1)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        return super().forward(self.blur(x.mT).mT, key_padding_mask)


class Pooled(nn.Module):
    """Keys and values are pooled in twos before attention, which has a mask of its own for them."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(D, 3, batch_first=True)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        if key_padding_mask is None:
            key_padding_mask = torch.zeros(x.shape[:2], dtype=torch.bool)
        pooled = nn.functional.avg_pool1d(x.mT, 2, ceil_mode=True).mT
        hidden = nn.functional.max_pool1d(key_padding_mask.float()[:, None], 2, ceil_mode=True)[:, 0].bool()
        output: Tensor = self.attention(x, pooled, pooled, key_padding_mask=hidden)[0]
        return output


@pytest.mark.parametrize("causal", [False, True])
def test_pads_that_attention_lets_in(causal: bool) -> None:
    found = [finding for finding in attn_guard.check(seeded(Padded, False, causal)) if finding.fails]
    assert [(finding.code, finding.severity) for finding in found] == [("ATN212", Severity.WARNING)]
    assert attn_guard.check(seeded(Padded, True, causal)).ok


def test_pads_that_a_convolution_mixes_in() -> None:
    assert attn_guard.check(seeded(Blurred)).ok
    assert [finding.code for finding in attn_guard.check(seeded(Blurred, False)) if finding.fails] == ["ATN212"]


def test_a_declared_promise_is_held_whatever_the_way() -> None:
    (found,) = attn_guard.check(seeded(Blurred), masks={"key_padding_mask": "ignore"})
    assert (found.code, found.severity) == ("ATN212", Severity.ERROR)


def test_pooled_keys_with_a_mask_of_their_own() -> None:
    assert attn_guard.check(seeded(Pooled)).ok
