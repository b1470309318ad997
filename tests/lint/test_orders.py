"""Comparisons that are joined although they never hold at once, or although one of the two always holds."""

from __future__ import annotations

import pytest

from tests.lint.sources import attention
from tests.lint.test_masks import codes

PLACES = "qt, kt = self.places(t)\nwindow = self.window_size\n"
HIDE = "\nscores = scores.masked_fill(hide, torch.finfo(scores.dtype).min)"
KEEP = "\nscores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)"


@pytest.mark.parametrize(
    "then",
    [
        "hide = (qt[:, None] < kt[None, :]) & (qt[:, None] > kt[None, :] + window)" + HIDE,
        "hide = qt[:, None] < kt[None, :]\nhide = hide & (qt[:, None] > (kt[None, :] + self.look_back * 2))" + HIDE,
        "hide = qt < kt\nif self.exact:\n    hide = hide & (qt - kt > window)" + HIDE,
        "hide = qt < kt\nhide &= qt > kt + 8" + HIDE,
        "hide = torch.logical_and(kt > qt, kt < qt - window)" + HIDE,
        "hide = (kt > qt) & (kt < qt)" + HIDE,
        "hide = (kt > qt) & ~(kt >= qt - window)" + HIDE,
        "keep = (kt <= qt) | (qt - kt < window)" + KEEP,
        "keep = (kt <= qt) | (kt > qt - window)" + KEEP,
        "keep = torch.logical_or(kt <= qt, qt < kt + self.max_distance)" + KEEP,
    ],
)
def test_comparisons_of_which_one_loses_are_found(then: str) -> None:
    assert codes(attention(then=PLACES + then)) == ["ATN221"]


@pytest.mark.parametrize(
    "then",
    [
        "hide = (qt < kt) | (qt > kt + window)" + HIDE,
        "hide = (kt > qt + window) | (kt < qt - window)" + HIDE,
        "keep = (kt <= qt) & (kt > qt - window)" + KEEP,
        "keep = (kt <= qt) & (kt >= qt)" + KEEP,  # the key of the query itself
        "keep = (kt < qt) & (kt > qt + self.shift)" + KEEP,  # a shift may be negative
        "keep = (kt > qt - window) & (kt < qt + window)" + KEEP,
        "keep = (kt <= qt) | (kt < self.prefix_len)" + KEEP,  # a prefix that all may see
        "hide = (kt > qt) & (kt > self.prefix_len)" + HIDE,
        "hide = (kt > qt) & (ids < kt - window)" + HIDE,  # of other things
        "both = (qt < kt) & (qt > kt + window)\nprint(both)",
    ],
)
def test_comparisons_that_fit_are_fine(then: str) -> None:
    assert codes(attention(then=PLACES + then)) == []
