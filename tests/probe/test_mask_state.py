"""Masks that a call changes, and masks that leave the range of their dtype."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Finding, Report, Severity
from tests.probe.modules import later, seeded
from tests.probe.silent_modules import Parts, PreallocatedCache

LOW = torch.finfo(torch.float32).min
Prepare = Callable[[Tensor], Tensor]


def failing(report: Report) -> list[Finding]:
    return [finding for finding in report if finding.fails]


class Masked(Parts):
    """``prepare(mask)`` gives what to hide."""

    def __init__(self, prepare: Prepare) -> None:
        super().__init__()
        self.prepare = prepare

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        scores = self.scores(q, k)
        if mask is not None:
            scores = scores.masked_fill(self.prepare(mask)[:, None, None], LOW)
        return self.merge(scores.softmax(-1) @ v)


def by_assignment(mask: Tensor) -> Tensor:
    keep = mask.bool()  # no copy of a boolean mask
    keep[:] = ~keep
    return ~keep


def by_a_view(mask: Tensor) -> Tensor:
    mask.view(-1).logical_not_()
    return ~mask


def in_place(mask: Tensor) -> Tensor:
    return ~mask.logical_not_()


@pytest.mark.parametrize("prepare", [by_assignment, by_a_view, in_place])
def test_the_mask_of_the_caller_is_changed(prepare: Prepare) -> None:
    module = seeded(Masked, prepare)
    (found,) = failing(attn_guard.check(module, masks={"mask": "ignore"}))
    assert found.code == "ATN210"
    assert "the caller's mask" in found.message


@pytest.mark.parametrize("prepare", [lambda m: m, lambda m: ~(~m), lambda m: m.clone().logical_or_(m)])
def test_the_mask_of_the_caller_is_kept(prepare: Prepare) -> None:
    assert list(attn_guard.check(seeded(Masked, prepare), masks={"mask": "ignore"})) == []


class Stored(Parts):
    """A causal mask in a buffer or an attribute; ``clones`` says whether padding is written into a copy."""

    hidden: Tensor

    def __init__(self, kind: str, clones: bool) -> None:
        super().__init__()
        self.clones = clones
        triangle = later(32)
        if kind == "buffer":
            self.register_buffer("hidden", triangle)
        else:
            self.hidden = triangle

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        hidden = self.hidden[: x.shape[1], : x.shape[1]]
        if self.clones:
            hidden = hidden.clone()
        if mask is not None:
            hidden[:, mask.all(dim=0)] = True
        return self.merge(self.scores(q, k).masked_fill(hidden, LOW).softmax(-1) @ v)


@pytest.mark.parametrize("kind", ["buffer", "attribute"])
@pytest.mark.parametrize("clones", [True, False])
def test_a_stored_mask_that_gathers_padding(kind: str, clones: bool) -> None:
    module = seeded(Stored, kind, clones)
    assert isinstance(module, Stored)
    before = module.hidden.clone()
    found = failing(attn_guard.check(module))
    assert [one.code for one in found] == ([] if clones else ["ATN210"])
    assert torch.equal(module.hidden, before)


def test_a_stored_mask_that_is_filled_anew_each_time() -> None:
    class Refilled(Parts):
        hidden: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("hidden", torch.zeros(8, 32, dtype=torch.bool))

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            hidden = self.hidden[: mask.shape[0], : mask.shape[1]]
            hidden.copy_(mask)
            return self.merge(self.scores(q, k).masked_fill(hidden[:, None, None], LOW).softmax(-1) @ v)

    assert list(attn_guard.check(seeded(Refilled), masks={"mask": "ignore"})) == []


def test_a_cache_of_keys_and_values_is_no_mask() -> None:
    assert list(attn_guard.check(seeded(PreallocatedCache), causal=True)) == []


class Low(Parts):
    """Causal attention of this fill; where that is None, attention with planes of the lowest number over padded keys
    and over padded queries, which both block whole rows of a sample of padding only.
    """

    def __init__(self, fill: float | None) -> None:
        super().__init__()
        self.fill = fill

    def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        scores, time = self.scores(q, k), x.shape[1]
        lowest = torch.finfo(scores.dtype).min
        if self.fill is None:
            padding = torch.zeros(key_padding_mask.shape, dtype=scores.dtype).masked_fill(key_padding_mask, lowest)
            return self.merge((scores + (padding[:, None, :, None] + padding[:, None, None])).softmax(-1) @ v)
        hidden = later(time) | key_padding_mask[:, None, None]
        return self.merge(
            scores.masked_fill(hidden, max(self.fill, lowest) if self.fill == LOW else self.fill).softmax(-1) @ v
        )


@pytest.mark.parametrize(
    ("dtype", "fill", "code"),
    [
        (torch.float16, -1e9, "ATN204"),
        (torch.float16, LOW, None),
        (torch.bfloat16, -1e9, None),
        (torch.float32, -1e9, None),
        (torch.float32, None, "ATN204"),
        (torch.float16, None, "ATN204"),
    ],
)
def test_fills_and_dtypes(dtype: torch.dtype, fill: float | None, code: str | None) -> None:
    report = attn_guard.check(seeded(Low, fill).to(dtype))
    assert [found.code for found in failing(report)] == ([code] if code else []), str(report)


def test_planes_that_only_add_up_to_minus_infinity_are_a_warning() -> None:
    (found,) = failing(attn_guard.check(seeded(Low, None)))
    assert found.severity is Severity.WARNING
    assert "-inf" in found.message


@pytest.mark.parametrize("filled_first", [False, True])
def test_planes_of_the_future_and_of_padding_leave_each_query_a_key(filled_first: bool) -> None:
    class Planes(Parts):
        def forward(self, x: Tensor, key_padding_mask: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            scores, time = self.scores(q, k), x.shape[1]
            padding = torch.zeros(key_padding_mask.shape).masked_fill(key_padding_mask, LOW)[:, None, None]
            if filled_first:
                return self.merge((torch.where(later(time), LOW, scores) + padding).softmax(-1) @ v)
            future = torch.zeros(time, time).masked_fill(later(time), LOW)
            return self.merge((scores + (future + padding)).softmax(-1) @ v)

    assert list(attn_guard.check(seeded(Planes))) == []


def test_a_bias_on_top_of_a_low_fill_is_no_overflow() -> None:
    class Biased(Parts):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.randn(32, 32))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            time = x.shape[1]
            mask = torch.zeros(time, time).masked_fill(later(time), LOW)
            return self.merge((self.scores(q, k) + self.bias[:time, :time] + mask).softmax(-1) @ v)

    assert list(attn_guard.check(seeded(Biased), causal=True)) == []
