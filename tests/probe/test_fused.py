"""Hand-written attention that one fused call computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Severity
from attn_guard.probe.fused import FusedCall
from tests.probe import silent_modules as designs
from tests.probe.modules import (
    CAUSAL_STYLES,
    HEAD_DIM,
    BuiltIn,
    CrossAttention,
    Decoder,
    FusedQkv,
    H,
    Sdpa,
    features,
    later,
    seeded,
)
from tests.probe.silent_modules import Core, Parts

CALL = "F.scaled_dot_product_attention(query, key, value{})"


def calls(module: nn.Module, *inputs: Tensor) -> list[FusedCall]:
    return list(attn_guard.xray(module, inputs or None).fused_calls)


@pytest.mark.parametrize(
    ("build", "arguments"),
    [
        (FusedQkv, ""),
        (lambda: FusedQkv(causal=True), ", is_causal=True"),
        (CAUSAL_STYLES["einsum"], ", is_causal=True"),
        (CrossAttention, ""),
        (designs.QuarterRoot, ", is_causal=True"),
        (designs.FiniteFill, ", is_causal=True"),
        (lambda: FusedQkv(dropout=0.1), ""),
    ],
)
def test_the_call_to_write(build: Callable[[], nn.Module], arguments: str) -> None:
    (call,) = calls(seeded(build))
    assert call.text == CALL.format(arguments)
    assert call.difference < 1e-5


def test_a_scale_of_its_own() -> None:
    class MuP(Core):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return q @ k.mT / HEAD_DIM

    (call,) = calls(seeded(MuP))
    assert call.text == CALL.format(f", is_causal=True, scale={1 / HEAD_DIM:.4g}")


def test_a_mask_that_is_no_triangle() -> None:
    class Window(Core):
        def hide(self, scores: Tensor) -> Tensor:
            far = torch.ones_like(scores, dtype=torch.bool).tril(-2)
            return scores.masked_fill(later(scores.shape[-1]) | far, -torch.inf)

    (call,) = calls(seeded(Window))
    assert call.text == CALL.format(", attn_mask=mask")


@pytest.mark.parametrize(
    "build",
    [
        Sdpa,
        BuiltIn,
        designs.SoftCap,
        designs.Alibi,
        designs.SinkColumn,
        designs.OffByOne,
        designs.TopKScores,
        designs.Temperature,
        designs.ZeroedTwice,
        designs.RelativeKeys,
    ],
)
def test_what_the_fused_call_cannot_say_or_already_says(build: Callable[[], nn.Module]) -> None:
    assert calls(seeded(build)) == []


def test_weights_that_are_returned_are_needed() -> None:
    class Showing(Parts):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            q, k, v = self.heads(x)
            weights = self.scores(q, k).softmax(-1)
            return self.merge(weights @ v), weights

    assert calls(seeded(Showing)) == []


def test_weak_fills_are_not_the_same() -> None:
    class Weak(Core):
        def hide(self, scores: Tensor) -> Tensor:
            return scores.masked_fill(later(scores.shape[-1]), -20.0)

    assert calls(seeded(Weak)) == []


def test_one_for_each_line_of_a_model() -> None:
    assert len(calls(seeded(Decoder, layers=3))) == 1


def test_the_difference_is_that_of_plain_torch() -> None:
    x = features()
    module = seeded(FusedQkv)
    (call,) = calls(module, x)
    q, k, v = (part.view(2, 5, H, -1).transpose(1, 2) for part in module.in_proj(x).chunk(3, -1))  # type: ignore[operator]
    by_hand = (q @ k.mT / HEAD_DIM**0.5).softmax(-1) @ v
    fused = F.scaled_dot_product_attention(q, k, v)
    assert call.difference == pytest.approx(float((by_hand - fused).abs().max().detach()), abs=2e-7)


def test_it_is_said_on_request_only() -> None:
    module = seeded(FusedQkv, causal=True)
    for selection in ([], ["ALL"], ["ATN8"]):
        assert list(attn_guard.check(module, select=selection, preview=True)) == []
    report = attn_guard.check(module, select=["ATN801"])
    (found,) = report
    assert (found.code, found.severity) == ("ATN801", Severity.INFO)
    assert found.help.startswith("call " + CALL.format(", is_causal=True"))
    assert "times as fast ([1, 3, 128, 7]" in found.found
    assert report.ok
