"""Which outputs depend on which inputs, and the second opinion where a difference may be rounding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.reference import MultiHeadAttention, causal_mask


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
