"""The same verdicts on every dtype and device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from tests.probe.modules import D, Einsum, FusedQkv, features, seeded
from tests.probe.silent_modules import Core, Encoder

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")),
    pytest.param("mps", marks=pytest.mark.skipif(not torch.backends.mps.is_available(), reason="no MPS here")),
]


class Unscaled(Core):
    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT


class Scrambled(Core):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        scrambled: Tensor = self.out((self.scores(q, k).softmax(-1) @ v).reshape(x.shape))
        return scrambled


class WeakFill(FusedQkv):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (3, -1)).transpose(1, 2) for part in self.in_proj(x).chunk(3, -1))
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(later, -4.0)
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def torch_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(D, 3, 11, batch_first=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES)
class TestVerdicts:
    @pytest.mark.parametrize("build", [FusedQkv, Einsum, Encoder, torch_layer])
    def test_right(self, build: Callable[[], nn.Module], dtype: torch.dtype, device: str) -> None:
        report = attn_guard.check(seeded(build).to(device, dtype))
        assert list(report) == [], str(report)
        assert report.sites

    def test_causal(self, dtype: torch.dtype, device: str) -> None:
        report = attn_guard.check(nn.Sequential(FusedQkv(), FusedQkv()).to(device, dtype), causal=True)
        assert {finding.code for finding in report} == {"ATN214"}
        if device == "cpu":
            assert attn_guard.check(seeded(FusedQkv, causal=True).to(dtype), causal=True).ok

    @pytest.mark.parametrize(("build", "code"), [(Unscaled, "ATN101"), (Scrambled, "ATN304"), (WeakFill, "ATN203")])
    def test_broken(self, build: Callable[[], nn.Module], code: str, dtype: torch.dtype, device: str) -> None:
        report = attn_guard.check(seeded(build).to(device, dtype))
        assert [finding.code for finding in report if finding.fails] == [code], str(report)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_are_made_in_the_dtype_of_the_module(dtype: torch.dtype) -> None:
    seen = attn_guard.xray(seeded(FusedQkv).to(dtype))
    assert seen.call.args[0].dtype is dtype
    assert seen.sites[0].weights.dtype is dtype


def test_a_module_of_mixed_dtypes() -> None:
    class Mixed(FusedQkv):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.to(self.in_proj.weight.dtype)).to(x.dtype)

    report = attn_guard.check(seeded(Mixed).to(torch.bfloat16), features())
    assert list(report) == [], str(report)
