"""Linear attention whose weights sum to one, and linear attention whose weights do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import attn_guard
from tests.probe.modules import features, seeded
from tests.probe.silent_modules import Parts

Divisor = Callable[[Tensor, Tensor], Tensor]


class Running(Parts):
    """Causal linear attention: φ(q) Σ φ(k)ᵀ v over the keys so far, divided by what ``divisor`` makes of φ(q), φ(k)."""

    def __init__(self, divisor: Divisor, written: str = "einsum") -> None:
        super().__init__()
        self.divisor, self.written = divisor, written

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        if self.written == "einsum":
            sums = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(dim=2)
            context = torch.einsum("bhtd,bhtde->bhte", q, sums)
        else:
            sums = torch.cumsum(k[..., :, None] @ v[..., None, :], dim=-3)
            context = (q[..., None, :] @ sums).squeeze(-2)
        return self.merge(context / self.divisor(q, k))


def own_sum(q: Tensor, k: Tensor) -> Tensor:
    return (q * k.cumsum(dim=2)).sum(-1, keepdim=True) + 1e-6


@pytest.mark.parametrize("written", ["einsum", "matmul"])
def test_a_running_sum_over_the_same_keys_is_right(written: str) -> None:
    module = seeded(lambda: Running(own_sum, written))
    report = attn_guard.check(module, features(), causal=True, preview=True)
    assert report.ok
    assert "running sums" in str(report)


@pytest.mark.parametrize("written", ["einsum", "matmul"])
@pytest.mark.parametrize(
    "divisor",
    [
        lambda q, k: 1.0,
        lambda q, k: k.shape[2],
        lambda q, k: (q * k).sum(-1, keepdim=True),
        lambda q, k: (q * k.sum(dim=2, keepdim=True)).sum(-1, keepdim=True),
        lambda q, k: (q * k.cumsum(dim=1)).sum(-1, keepdim=True),
    ],
    ids=["nothing", "length", "own key", "all keys", "heads"],
)
def test_any_other_divisor_is_named_alone(divisor: Divisor, written: str) -> None:
    module = seeded(lambda: Running(divisor, written))
    report = attn_guard.check(module, features(), causal=True, preview=True)
    assert [finding.code for finding in report if finding.fails] == ["ATN109"]


@pytest.mark.parametrize("normalised", ["before", "reciprocal", "ones"])
def test_the_division_may_stand_anywhere(normalised: str) -> None:
    class Elsewhere(Parts):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            q, k = F.elu(q) + 1, F.elu(k) + 1
            total = (q * k.sum(dim=2, keepdim=True)).sum(-1, keepdim=True)
            if normalised == "before":
                return self.merge((q / total) @ (k.mT @ v))
            if normalised == "reciprocal":
                return self.merge(q @ (k.mT @ v) * (1 / total))
            both = q @ (k.mT @ F.pad(v, (0, 1), value=1.0))
            return self.merge(both[..., :-1] / both[..., -1:])

    assert attn_guard.check(seeded(Elsewhere), features(), preview=True).ok


@pytest.mark.parametrize("running", [True, False])
def test_an_output_projection_that_is_left_out(running: bool) -> None:
    class Unprojected(Parts):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            q, k = F.elu(q) + 1, F.elu(k) + 1
            if running:
                context = torch.einsum("bhtd,bhtde->bhte", q, torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(dim=2))
                total = own_sum(q, k)
            else:
                context, total = q @ (k.mT @ v), q @ k.sum(dim=-2, keepdim=True).mT
            return (context / total).transpose(1, 2).flatten(2)

    report = attn_guard.check(seeded(Unprojected), features(), preview=True)
    assert [(finding.code, finding.expected) for finding in report if finding.fails] == [
        ("ATN406", "out on the way to the output")
    ]
