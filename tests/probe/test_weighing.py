"""Weights over positions that are no products of query and key: pooling, and additive attention."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.anatomy import Axis, Size, Stage
from tests.probe.modules import HEAD_DIM, D, features, seeded
from tests.probe.silent_modules import Pooling


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


class Columns(GatedPooling):
    """The same, with scores along the last axis and a product of matrices."""

    def forward(self, x: Tensor) -> Tensor:
        weights = self.score(x).transpose(1, 2).softmax(dim=-1)
        return (weights @ x).squeeze(1)


class Vector(nn.Module):
    """One learned vector scores each position."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.vector = nn.Linear(D, D), nn.Parameter(torch.randn(D))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bt,btd->bd", self.scores(torch.tanh(self.project(x))).softmax(-1), x)

    def scores(self, bent: Tensor) -> Tensor:
        return bent @ self.vector


class Summed(Vector):
    """The product with the vector is written out."""

    def scores(self, bent: Tensor) -> Tensor:
        return (bent * self.vector).sum(-1)


class Heads(nn.Module):
    """Several heads, each of which pools the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(D, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bth,btd->bhd", self.score(x).softmax(dim=1), x).flatten(1)


class Statistics(nn.Module):
    """Each channel has weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Conv1d(D, HEAD_DIM, 1), nn.Tanh(), nn.Conv1d(HEAD_DIM, D, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = x.mT
        return (self.score(x).softmax(dim=2) * x).sum(dim=2)


class Slots(nn.Module):
    """Learned queries take a share of each position, and each position one of what they hold (soft mixture)."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.expert = nn.Linear(D, 4), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.score(x)
        return scores.softmax(dim=-1) @ self.expert(scores.softmax(dim=1).mT @ x)


@pytest.mark.parametrize("build", [GatedPooling, Columns, Vector, Summed, Heads, Statistics, Slots, Pooling, Bahdanau])
def test_weights_over_positions_are_a_site(build: type[nn.Module]) -> None:
    report = attn_guard.check(seeded(build), features(), preview=True)
    assert [(site.softmax_over, site.sizes[Size.KEYS]) for site in report.sites] == [(Axis.KEYS, 5)]
    assert list(report) == []


class TestOneSequenceAlone:
    """Without an axis of samples, the weights have one axis."""

    WAYS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
        lambda weights, x: x.mT @ weights,
        lambda weights, x: weights @ x,
        lambda weights, x: torch.einsum("t,td->d", weights, x),
        lambda weights, x: torch.mv(x.t(), weights),
    )

    @pytest.mark.parametrize("weigh", WAYS)
    def test_it_is_a_site(self, weigh: Callable[[Tensor, Tensor], Tensor]) -> None:
        class Single(GatedPooling):
            def forward(self, x: Tensor) -> Tensor:
                return weigh(self.score(x).squeeze(-1).softmax(dim=0), x)

        report = attn_guard.check(seeded(Single), torch.randn(7, D), preview=True)
        assert [site.softmax_over for site in report.sites] == [Axis.KEYS]
        assert list(report) == []

    @pytest.mark.parametrize("weigh", WAYS)
    def test_each_sample_by_itself(self, weigh: Callable[[Tensor, Tensor], Tensor]) -> None:
        class Looped(GatedPooling):
            def forward(self, x: Tensor) -> Tensor:
                return torch.stack([weigh(self.score(row).squeeze(-1).softmax(dim=0), row) for row in x])

        report = attn_guard.check(seeded(Looped), features(), preview=True)
        assert {(site.softmax_over, site.sizes[Size.KEYS]) for site in report.sites} == {(Axis.KEYS, 5)}
        assert list(report) == []


def test_weights_that_cannot_be_followed_are_no_site() -> None:
    """Other weights would be fewer than the shape that they are put in."""

    class Chosen(GatedPooling):
        def forward(self, x: Tensor) -> Tensor:
            weights = self.score(x).squeeze(-1).softmax(dim=-1)
            return torch.einsum("bt,btd->bd", weights[weights <= 1].view(weights.shape), x)

    report = attn_guard.check(seeded(Chosen), features())
    assert report.sites == ()
    assert report.ok


class Gated(nn.Module):
    """Gates over experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router, self.experts = nn.Linear(D, 3), nn.ModuleList(nn.Linear(D, D) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        outputs = torch.stack([expert(x) for expert in self.experts], dim=-2)
        return (self.router(x).softmax(-1)[..., None] * outputs).sum(dim=-2)


def test_gates_are_not_over_positions() -> None:
    assert attn_guard.check(seeded(Gated), features(), preview=True).sites == ()


class TestTheAxis:
    def found(self, build: type[nn.Module]) -> list[tuple[str, str]]:
        return [(one.code, one.message) for one in attn_guard.check(seeded(build), features()) if one.fails]

    def test_one_score_alone(self) -> None:
        class Alone(GatedPooling):
            def forward(self, x: Tensor) -> Tensor:
                return (self.score(x).softmax(dim=-1) * x).sum(dim=1)

        assert self.found(Alone) == [("ATN104", "softmax runs over one score alone")]

    def test_the_batch(self) -> None:
        class Samples(GatedPooling):
            def forward(self, x: Tensor) -> Tensor:
                return (self.score(x).softmax(dim=0) * x).sum(dim=1)

        assert self.found(Samples) == [("ATN104", "softmax runs over the batch")]

    def test_the_batch_of_additive_attention(self) -> None:
        class Decoder(Bahdanau):
            def forward(self, state: Tensor, memory: Tensor) -> Tensor:  # type: ignore[override]
                added = torch.tanh(self.query(state)[:, None] + self.key(memory))
                weights = self.score(added).squeeze(-1).softmax(dim=0)
                return (weights[:, None] @ memory).squeeze(1)

        report = attn_guard.check(seeded(Decoder), (features().mean(dim=1), features()))
        assert [one.message for one in report if one.fails] == ["softmax runs over the batch"]

    def test_the_queries_of_one_sequence(self) -> None:
        class Single(Bahdanau):
            def forward(self, x: Tensor) -> Tensor:
                added = torch.tanh(self.query(x)[:, None] + self.key(x)[None])
                return self.score(added).squeeze(-1).softmax(dim=0) @ x

        report = attn_guard.check(seeded(Single), features()[0])
        assert [one.message for one in report if one.fails] == ["softmax runs over the queries"]

    def test_the_queries(self) -> None:
        class Turned(Bahdanau):
            def forward(self, x: Tensor) -> Tensor:
                added = torch.tanh(self.query(x)[:, :, None] + self.key(x)[:, None])
                return self.score(added).squeeze(-1).softmax(dim=1) @ x

        assert self.found(Turned) == [("ATN104", "softmax runs over the queries")]


class TestSumsOneAfterAnother:
    """Two sums are one over both axes, in whichever order they stand."""

    def found(self, build: type[nn.Module], x: Tensor) -> list[tuple[Axis | None, int]]:
        report = attn_guard.check(seeded(build), x)
        assert report.ok
        return [(site.softmax_over, site.sizes[Size.KEYS]) for site in report.sites]

    @pytest.mark.parametrize("last", [lambda x: x.sum(2), lambda x: x.mT.sum(1), lambda x: (x / 6).sum(2)])
    def test_joints_and_then_frames(self, last: Callable[[Tensor], Tensor]) -> None:
        class Skeleton(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.score = nn.Conv2d(D, 1, 1)

            def forward(self, x: Tensor) -> Tensor:
                return last((x * self.score(x).softmax(dim=2)).sum(3))

        assert self.found(Skeleton, torch.randn(2, D, 5, 6)) == [(Axis.KEYS, 5)]

    def test_the_frames_of_one_clip(self) -> None:
        class Clip(GatedPooling):
            def forward(self, x: Tensor) -> Tensor:
                return (self.score(x).softmax(dim=0) * x).mean(1).sum(0)

        assert self.found(Clip, torch.randn(5, 6, D)) == [(Axis.KEYS, 5)]

    def test_views_of_which_there_is_one(self) -> None:
        class Views(GatedPooling):
            def forward(self, x: Tensor) -> Tensor:
                return (self.score(x).softmax(dim=1) * x).sum(2).sum(1)

        assert self.found(Views, torch.randn(2, 1, 6, D)) == [(Axis.KEYS, 1)]

    @pytest.mark.parametrize("last", [lambda x: x.sum(-1), lambda x: x.mean()])
    def test_a_later_sum_over_features_or_a_loss(self, last: Callable[[Tensor], Tensor]) -> None:
        class Samples(GatedPooling):
            def forward(self, x: Tensor) -> Tensor:
                return last((self.score(x).softmax(dim=0) * x).sum(1))

        report = attn_guard.check(seeded(Samples), features())
        assert [one.message for one in report if one.fails] == ["softmax runs over the batch"]


class TestOtherReaders:
    """What reads the weights before the pooling does not hide it."""

    READERS: tuple[Callable[[Tensor], object], ...] = (
        lambda weights: torch.isfinite(weights).all(),
        lambda weights: weights.argmax(dim=1),
        lambda weights: -(weights * (weights + 1e-9).log()).sum(dim=1).mean(),
        lambda weights: (weights.mT @ weights).sum(),
    )

    @pytest.mark.parametrize("read", READERS)
    @pytest.mark.parametrize(("along", "codes"), [(0, ["ATN104"]), (1, [])])
    def test_the_site_shows(self, read: Callable[[Tensor], object], along: int, codes: list[str]) -> None:
        class Read(GatedPooling):
            def forward(self, x: Tensor) -> tuple[Tensor, object]:  # type: ignore[override]
                weights = self.score(x).softmax(dim=along)
                return read(weights), (weights * x).sum(dim=1)  # type: ignore[return-value]

        report = attn_guard.check(seeded(Read), features())
        assert len(report.sites) == 1
        assert [one.code for one in report if one.fails] == codes


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


class TestDropout:
    def found(self, build: type[nn.Module]) -> list[str]:
        return [one.code for one in attn_guard.check(seeded(build), features()) if one.fails]

    def test_of_the_weights(self) -> None:
        class Dropped(GatedPooling):
            def __init__(self) -> None:
                super().__init__()
                self.dropout = 0.1

            def forward(self, x: Tensor) -> Tensor:
                weights = F.dropout(self.score(x).softmax(dim=1), self.dropout, self.training)
                return (weights * x).sum(dim=1)

        seen = attn_guard.xray(seeded(Dropped), features())
        assert [one.stage for one in seen.modes.training.dropouts] == [Stage.WEIGHTS]
        assert self.found(Dropped) == []

    def test_in_evaluation(self) -> None:
        class Always(GatedPooling):
            def forward(self, x: Tensor) -> Tensor:
                return (F.dropout(self.score(x).softmax(dim=1), 0.1) * x).sum(dim=1)

        assert self.found(Always) == ["ATN501"]

    def test_of_the_scores(self) -> None:
        class Early(GatedPooling):
            def __init__(self) -> None:
                super().__init__()
                self.dropout = nn.Dropout(0.1)

            def forward(self, x: Tensor) -> Tensor:
                return (self.dropout(self.score(x)).softmax(dim=1) * x).sum(dim=1)

        assert self.found(Early) == ["ATN502"]


def test_samples_that_are_mixed_after_pooling() -> None:
    class Mixed(GatedPooling):
        def forward(self, x: Tensor) -> Tensor:
            pooled: Tensor = super().forward(x)
            return pooled - pooled.mean(dim=0)

    report = attn_guard.check(seeded(Mixed), features())
    assert [one.code for one in report if one.fails] == ["ATN404"]
