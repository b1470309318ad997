"""Attention of other kinds is left alone, with the reason."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Severity
from attn_guard.probe.declined import Reason
from tests.probe.modules import HEAD_DIM, D, features, seeded
from tests.probe.silent_modules import Core, Parts, Pooling


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


class Bahdanau(nn.Module):
    """tanh(W q + U k) · v, for each query and key."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(D, HEAD_DIM), nn.Linear(D, HEAD_DIM)
        self.score = nn.Linear(HEAD_DIM, 1)

    def forward(self, x: Tensor) -> Tensor:
        added = torch.tanh(self.query(x)[:, :, None] + self.key(x)[:, None])
        weights = self.score(added).squeeze(-1).softmax(dim=-1)
        return weights @ x


class GatedPooling(nn.Module):
    """Each position says by itself how much it counts."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(D, HEAD_DIM), nn.Tanh(), nn.Linear(HEAD_DIM, 1))

    def forward(self, x: Tensor) -> Tensor:
        weights = self.score(x).softmax(dim=1)
        return (weights * x).sum(dim=1)


KINDS = [
    (Linear, Reason.LINEAR),
    (Efficient, Reason.LINEAR),
    (Sigmoid, Reason.NO_SOFTMAX),
    (Bahdanau, Reason.ADDITIVE),
    (GatedPooling, Reason.POOLING),
    (Pooling, Reason.POOLING),
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
            self.attention, self.pool = Core(), GatedPooling()

        def forward(self, x: Tensor) -> Tensor:
            return self.pool(self.attention(x))

    seen = attn_guard.xray(seeded(Both), (features(),), {})
    assert [declined.reason for declined in seen.declined] == [Reason.POOLING]
    assert list(attn_guard.check(seeded(Both), features())) == []


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


class MaskedPooling(GatedPooling):
    """Each position says how much it counts, and padded ones do not."""

    def forward(self, x: Tensor, pads: Tensor) -> Tensor:  # type: ignore[override]
        weights = self.weigh(self.score(x).squeeze(-1), pads)
        return (weights[..., None] * x).sum(dim=1)

    def weigh(self, scores: Tensor, pads: Tensor) -> Tensor:
        return scores.masked_fill(pads, -torch.inf).softmax(dim=-1)


class TestMasksOfOtherKinds:
    def found(self, build: type[nn.Module]) -> list[str]:
        pads = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        report = attn_guard.check(seeded(build), (features(), pads), masks={"pads": "ignore"})
        return [finding.code for finding in report if finding.fails]

    def test_right(self) -> None:
        assert self.found(MaskedPooling) == []

    def test_a_product_with_the_scores(self) -> None:
        class Multiplied(MaskedPooling):
            def weigh(self, scores: Tensor, pads: Tensor) -> Tensor:
                return (scores * ~pads).softmax(dim=-1)

        assert self.found(Multiplied) == ["ATN203"]

    def test_after_the_softmax(self) -> None:
        class Late(MaskedPooling):
            def weigh(self, scores: Tensor, pads: Tensor) -> Tensor:
                return scores.softmax(dim=-1).masked_fill(pads, 0.0)

        assert self.found(Late) == ["ATN201"]

    def test_not_at_all(self) -> None:
        class Open(MaskedPooling):
            def weigh(self, scores: Tensor, pads: Tensor) -> Tensor:
                return scores.softmax(dim=-1)

        assert self.found(Open) == ["ATN212"]
