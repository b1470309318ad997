"""Attention of other kinds is left alone, with the reason."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Severity
from attn_guard.probe.declined import Reason
from tests.probe.modules import D, H, features, seeded
from tests.probe.silent_modules import Core, Parts


class Linear(Parts):
    """φ(q) (φ(k)ᵀ v), over a normaliser."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        context = q @ (k.mT @ v)
        return self.merge(context / (q @ k.sum(dim=-2, keepdim=True).mT))


class Efficient(Parts):
    """Softmax over the features of the query and the positions of the key (Shen et al. 2021)."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return self.merge(q.softmax(-1) @ (k.softmax(-2).mT @ v))


class Sigmoid(Parts):
    """A sigmoid in place of the softmax."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return self.merge(torch.sigmoid(self.scores(q, k) - 1.6) @ v)


class Outlook(Parts):
    """Each position says how much its neighbours count (Yuan et al. 2021)."""

    def __init__(self) -> None:
        super().__init__()
        self.near = nn.Linear(D, H * 3)

    def forward(self, x: Tensor) -> Tensor:
        _, _, v = self.heads(x)
        weights = self.near(x).unflatten(-1, (H, 1, 3)).transpose(1, 2).softmax(-1)
        around = F.pad(v, (0, 0, 1, 1)).unfold(2, 3, 1).mT
        return self.merge((weights @ around).squeeze(-2))


class Clusters(nn.Module):
    """Each position is shared out among clusters, which are summed over the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.assign = nn.Linear(D, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.assign(x).softmax(-1).mT @ x


class Bounded(nn.Module):
    """Scores of a kind that is not followed; the softmax is over one of them alone, the sum over all positions."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(D, 1)

    def forward(self, x: Tensor) -> Tensor:
        return (torch.tanh(self.score(x)).softmax(-1) * x).sum(dim=1)


KINDS = [
    (Linear, Reason.LINEAR),
    (Efficient, Reason.LINEAR),
    (Sigmoid, Reason.NO_SOFTMAX),
    (Outlook, Reason.PREDICTED),
    (Clusters, Reason.OTHER),
    (Bounded, Reason.OTHER),
]


@pytest.mark.parametrize(("build", "reason"), KINDS)
def test_the_reason_is_said(build: type[nn.Module], reason: Reason) -> None:
    seen = attn_guard.xray(seeded(build), (features(),), {})
    assert seen.sites == ()
    assert [declined.reason for declined in seen.declined] == [reason]
    (note,) = attn_guard.check(seeded(build), features(), preview=True)
    assert (note.code, note.severity) == ("ATN903", Severity.INFO)
    assert reason in note.message


def test_beside_ordinary_attention_nothing_is_said() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.pool = Core(), Clusters()

        def forward(self, x: Tensor) -> Tensor:
            return self.pool(self.attention(x))

    seen = attn_guard.xray(seeded(Both), (features(),), {})
    assert [declined.reason for declined in seen.declined] == [Reason.OTHER]
    assert list(attn_guard.check(seeded(Both), features())) == []


def test_of_one_position_nothing_is_said() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.score = nn.Linear(D, 1)

        def forward(self, x: Tensor) -> Tensor:
            return (self.score(x).softmax(dim=1) * x).sum(dim=1)

    assert list(attn_guard.check(seeded(Pooled), features(2, 1))) == []
    assert list(attn_guard.check(seeded(Pooled), features(), fuzz=10)) == []


def test_a_router_is_no_attention() -> None:
    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router, self.experts = nn.Linear(D, 3), nn.ModuleList(nn.Linear(D, D) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            gates = self.router(x).softmax(-1)
            mixed: Tensor = sum(gates[..., n : n + 1] * expert(x) for n, expert in enumerate(self.experts))
            return mixed

    assert attn_guard.xray(seeded(Experts), (features(),), {}).declined == ()


def test_a_plain_stack_has_nothing_to_decline() -> None:
    assert attn_guard.xray(nn.Sequential(nn.Linear(D, D), nn.ReLU()), (features(),), {}).declined == ()
