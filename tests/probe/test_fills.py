"""Fills that hide a key today and not once the scores have grown."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Severity
from tests.probe.modules import HEAD_DIM, features, later, seeded
from tests.probe.silent_modules import Core, Parts


def with_fill(fill: float, times: float = 1.0) -> nn.Module:
    class Filled(Core):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return (times * q) @ (times * k).mT * HEAD_DIM**-0.5

        def hide(self, scores: Tensor) -> Tensor:
            return scores.masked_fill(later(scores.shape[-1]), fill)

    return seeded(Filled)


class Sloped(Core):
    """A penalty on the distance and a fill for the future, in one bias of many numbers."""

    fill = -50.0

    def hide(self, scores: Tensor) -> Tensor:
        steps = torch.arange(scores.shape[-1])
        distance = (steps[:, None] - steps).abs()
        return scores + torch.where(later(len(steps)), self.fill, -0.5 * distance)


def sloped(fill: float) -> nn.Module:
    module = seeded(Sloped)
    module.fill = fill  # type: ignore[assignment]
    return module


@pytest.mark.parametrize(
    ("fill", "severity"),
    [(-15.0, Severity.ERROR), (-50.0, Severity.WARNING), (-100.0, Severity.INFO), (-1e4, Severity.INFO)],
)
def test_a_mask_by_its_number(fill: float, severity: Severity) -> None:
    (found,) = attn_guard.check(with_fill(fill), causal=True)
    assert (found.code, found.severity) == ("ATN203", severity)


@pytest.mark.parametrize(("fill", "severity"), [(-50.0, Severity.WARNING), (-70.0, Severity.INFO)])
def test_a_bias_by_what_larger_scores_uncover(fill: float, severity: Severity) -> None:
    module = sloped(fill)
    assert not torch.equal(module(features()), module(features(seed=1)))
    (found,) = attn_guard.check(module, causal=True)
    assert (found.code, found.severity, found.found) == ("ATN203", severity, f"{fill:g}")
    assert "larg" in found.message


@pytest.mark.parametrize("fill", [-torch.inf, -1e9])
def test_a_bias_that_hides_for_good(fill: float) -> None:
    assert list(attn_guard.check(sloped(fill), causal=True)) == []


def test_a_bias_of_a_module_that_promises_nothing() -> None:
    assert attn_guard.check(sloped(-50.0), select=["ATN203"]).ok


def test_a_fill_that_the_scores_of_the_module_have_reached() -> None:
    """-1e4 is a remark at ordinary scores, and a leak where they are as large."""
    report = attn_guard.check(with_fill(-1e4, times=200.0), (3 * features(),), causal=True)
    (found,) = (finding for finding in report if finding.fails and finding.code != "ATN102")
    assert (found.code, found.severity) == ("ATN203", Severity.ERROR)
    assert "ATN214" in found.consequences


@attn_guard.contract(masks={"pads": "ignore"})
class Padded(Parts):
    fill = -40.0

    def forward(self, x: Tensor, pads: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        scores = self.scores(q, k)
        if pads is not None:
            scores = scores.masked_fill(pads[:, None, None], self.fill)
        return self.merge(scores.softmax(-1) @ v)


@pytest.mark.parametrize(
    ("fill", "severity"), [(-1e-9, Severity.ERROR), (-40.0, Severity.WARNING), (-1e3, Severity.INFO), (-1e9, None)]
)
def test_the_fill_of_a_mask_that_the_call_left_out(fill: float, severity: Severity | None) -> None:
    module = seeded(Padded)
    module.fill = fill  # type: ignore[assignment]
    found = [(finding.code, finding.severity) for finding in attn_guard.check(module, features())]
    assert found == ([("ATN203", severity)] if severity else [])


class Added(Parts):
    """A padding mask that is added, as 0 and a number."""

    fill = torch.inf

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        scores = self.scores(q, k)
        if mask is not None:
            scores = scores + torch.where(mask[:, None, None], 0.0, self.fill)
        return self.merge(scores.softmax(-1) @ v)


@pytest.mark.parametrize("fill", [torch.inf, 1e9, torch.finfo(torch.float32).tiny, -torch.finfo(torch.float32).tiny])
def test_a_number_added_that_hides_nothing(fill: float) -> None:
    module = seeded(Added)
    module.fill = fill  # type: ignore[assignment]
    found = [finding for finding in attn_guard.check(module, features(), masks={"mask": "attend"}) if finding.fails]
    assert [(finding.code, finding.found) for finding in found] == [("ATN203", f"{fill:g}")]


@pytest.mark.parametrize("fill", [0.5, 3.0])
def test_a_bias_of_two_levels_is_no_mask(fill: float) -> None:
    """Keys of one's own segment may count for more."""

    class Favoured(Core):
        def hide(self, scores: Tensor) -> Tensor:
            return scores + torch.where(later(scores.shape[-1]), 0.0, fill)

    assert attn_guard.check(seeded(Favoured), features(), causal=False).ok


class InPart(Core):
    """What is added to the scores is written to all of them but those of the first position, in place."""

    def __init__(self, bias: Callable[[int], Tensor], way: str = "assign") -> None:
        super().__init__()
        self.bias, self.way = bias, way

    def hide(self, scores: Tensor) -> Tensor:
        bias = self.bias(scores.shape[-1] - 1)
        if self.way == "assign":
            scores[:, :, 1:, 1:] = scores[:, :, 1:, 1:] + bias
        elif self.way == "add":
            scores[:, :, 1:, 1:] += bias
        else:
            scores[:, :, 1:, 1:] = scores[:, :, 1:, 1:].masked_fill(bias < -1, float(bias.min()))
        return scores


def slope(time: int) -> Tensor:
    return -0.3 * (torch.arange(time)[:, None] - torch.arange(time)).abs()


def future(fill: float) -> Callable[[int], Tensor]:
    return lambda time: torch.zeros(time, time).masked_fill(later(time), fill)


@pytest.mark.parametrize("way", ["assign", "add"])
def test_a_bias_that_is_written_into_part_of_the_scores_hides_nothing(way: str) -> None:
    assert attn_guard.check(seeded(InPart, slope, way), features()).ok


def test_a_bias_of_content_that_is_written_into_part_of_the_scores_hides_nothing() -> None:
    """A relative term of the query, for all positions but the first one, which is the token of the class."""

    class Relative(Core):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(40, HEAD_DIM) / 5)

        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            scores = super().scores(q, k)
            steps = torch.arange(scores.shape[-1] - 1)
            rows = self.table[steps[:, None] - steps + len(steps)]
            scores[:, :, 1:, 1:] = scores[:, :, 1:, 1:] + torch.einsum("bhqc,qkc->bhqk", q[:, :, 1:], rows)
            return scores

        def hide(self, scores: Tensor) -> Tensor:
            return scores

    assert attn_guard.check(seeded(Relative), features()).ok


@pytest.mark.parametrize("way", ["assign", "add", "fill"])
@pytest.mark.parametrize("fill", [-5.0, -15.0])
def test_a_weak_fill_that_is_written_into_part_of_the_scores(way: str, fill: float) -> None:
    found = [finding for finding in attn_guard.check(seeded(InPart, future(fill), way), features()) if finding.fails]
    assert [finding.code for finding in found] == ["ATN203"]
    assert found[0].message.startswith("blocked keys keep up to")


@pytest.mark.parametrize("way", ["assign", "add", "fill"])
def test_a_sure_fill_that_is_written_into_part_of_the_scores(way: str) -> None:
    assert attn_guard.check(seeded(InPart, future(-torch.inf), way), features()).ok
