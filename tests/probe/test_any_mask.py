"""Whatever a padding mask looks like: right attention stays silent, and one that lets the padding through is found."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import attn_guard
from attn_guard import strategies
from tests.probe.modules import features, seeded
from tests.probe.silent_modules import Parts


class Padded(Parts):
    """Self-attention that is told of its padding (True: padded)."""

    fill = -torch.inf

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        scores = self.scores(q, k)
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None], self.fill)
        return self.merge(scores.softmax(-1) @ v)


class Leaking(Padded):
    """The padding keeps some weight."""

    fill = -2.0


@st.composite
def calls(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    batch, time = draw(st.integers(1, 4)), draw(st.integers(2, 8))
    return features(batch, time), draw(strategies.padding_masks(batch, time))


@settings(max_examples=12, deadline=None)
@given(calls())
def test_right_attention_is_silent_under_any_mask(call: tuple[Tensor, Tensor]) -> None:
    report = attn_guard.check(seeded(Padded), call)
    assert report.ok, str(report)


@settings(max_examples=12, deadline=None)
@given(calls())
def test_padding_that_keeps_weight_is_found_under_any_mask(call: tuple[Tensor, Tensor]) -> None:
    report = attn_guard.check(seeded(Leaking), call)
    assert [finding.code for finding in report if finding.fails] == ["ATN203"], str(report)
