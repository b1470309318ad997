"""Which outputs depend on which inputs, and the second opinion where a difference may be rounding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.reference import MultiHeadAttention, causal_mask
from tests.probe.modules import D, features, seeded
from tests.probe.silent_modules import Core


class Shifted(nn.Module):
    """Causal attention over x + m - m, with m from all positions: in exact arithmetic m has no influence."""

    def __init__(self, remainder: float) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(14, 2)
        self.remainder = remainder

    def forward(self, x: Tensor) -> Tensor:
        mean = 50.0 * x.mean(dim=1, keepdim=True)
        shifted = x + mean - mean + self.remainder * mean
        output: Tensor = self.attention(shifted, causal_mask(x.shape[1]))[0]
        return output


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounding_is_no_leak(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    report = attn_guard.check(Shifted(0.0).to(dtype), torch.randn(2, 5, 14, dtype=dtype), causal=True)
    assert not report.findings, str(report)


def test_the_rounding_is_there_bit_for_bit() -> None:
    torch.manual_seed(0)
    module, x = Shifted(0.0), torch.randn(2, 5, 14)
    other = torch.cat([x[:, :-1], torch.randn(2, 1, 14)], dim=1)
    assert (module(x)[:, :-1] != module(other)[:, :-1]).any()


@pytest.mark.parametrize("remainder", [1e-2, 1e-4, 1e-6])
def test_a_leak_is_found_however_small_it_is(remainder: float) -> None:
    torch.manual_seed(0)
    report = attn_guard.check(Shifted(remainder), torch.randn(2, 5, 14), causal=True)
    assert [finding.code for finding in report] == ["ATN405"]


def test_a_vector_for_each_sample_is_not_the_sequence() -> None:
    class Conditioned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = MultiHeadAttention(14, 2)

        def forward(self, condition: Tensor, x: Tensor) -> Tensor:
            out: Tensor = self.attention(x + condition[:, None])[0]
            return out

    x = torch.randn(3, 5, 14, generator=torch.Generator().manual_seed(0))
    seen = attn_guard.xray(Conditioned().eval(), (torch.ones(3, 14), x), {})
    assert seen.streams.main is not None
    assert seen.streams.main.name == "x"


class Summary(nn.Module):
    """Causal attention over the words, and learned labels that look them up."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.text, self.labels = Core(), nn.Parameter(torch.randn(labels, D))
        self.q, self.kv = nn.Linear(D, D), nn.Linear(D, 2 * D)

    def forward(self, x: Tensor) -> Tensor:
        k, v = self.kv(x + self.text(x)).chunk(2, dim=-1)
        q = self.q(self.labels).expand(len(x), -1, -1)
        return nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("labels", [5, 6])
def test_labels_that_look_words_up_are_not_the_words(labels: int) -> None:
    seen = attn_guard.xray(seeded(Summary, labels), (features(),), {})
    assert seen.streams.output is None
    assert attn_guard.check(seeded(Summary, labels), (features(),)).ok


def test_words_that_look_labels_up_are_the_words() -> None:
    class Conditioned(Summary):
        def forward(self, x: Tensor) -> Tensor:
            k, v = self.kv(self.labels).expand(len(x), -1, -1).chunk(2, dim=-1)
            return nn.functional.scaled_dot_product_attention(self.q(self.text(x)), k, v)

    assert attn_guard.xray(seeded(Conditioned, 5), (features(),), {}).streams.output is not None
