"""A softmax is found however it is written, and scores whichever way round they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.anatomy import Site, Stage, StepKind
from attn_guard.probe.anatomist import Anatomy
from tests.probe.modules import HEAD_DIM, features, later, seeded
from tests.probe.silent_modules import Core, Encoder

Weigh = Callable[[Tensor], Tensor]


def exp_sum(scores: Tensor) -> Tensor:
    raised = scores.exp()
    return raised / raised.sum(dim=-1, keepdim=True)


def shifted(scores: Tensor) -> Tensor:
    raised = (scores - scores.max(dim=-1, keepdim=True).values).exp()
    return raised / raised.sum(-1, keepdim=True)


def shifted_in_place(scores: Tensor) -> Tensor:
    raised = scores.clone().sub_(scores.amax(-1, keepdim=True)).exp_()
    return raised.div_(raised.sum(-1, keepdim=True))


def safeguarded(scores: Tensor) -> Tensor:
    raised = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
    return raised / (raised.sum(-1).unsqueeze(-1) + 1e-12)


def reciprocal(scores: Tensor) -> Tensor:
    raised = torch.exp(scores)
    return raised * raised.sum(-1, keepdim=True).reciprocal()


def logarithms(scores: Tensor) -> Tensor:
    return scores.log_softmax(dim=-1).exp()


def log_sum_exp(scores: Tensor) -> Tensor:
    return (scores - scores.logsumexp(dim=-1, keepdim=True)).exp()


def raised_twice(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum(dim=-1, keepdim=True)


def shifted_and_raised_twice(scores: Tensor) -> Tensor:
    total = (scores - scores.amax(-1, keepdim=True)).exp().sum(dim=-1, keepdim=True)
    return (scores - scores.amax(-1, keepdim=True)).exp() / total


WRITTEN: list[Weigh] = [
    raised_twice,
    shifted_and_raised_twice,
    exp_sum,
    shifted,
    shifted_in_place,
    safeguarded,
    reciprocal,
    logarithms,
    log_sum_exp,
]


def with_softmax(weigh: Weigh, base: type[Core] = Core) -> nn.Module:
    class Written(base):  # type: ignore[misc, valid-type]
        def weigh(self, scores: Tensor) -> Tensor:
            return weigh(scores)

    return seeded(Written)


def anatomy(module: nn.Module) -> Anatomy:
    (found,) = attn_guard.xray(module, (features(),), {}).sites
    return found


def site(module: nn.Module) -> Site:
    return anatomy(module).site


@pytest.mark.parametrize("weigh", WRITTEN, ids=lambda weigh: str(weigh.__name__))
class TestWrittenOut:
    def test_is_a_softmax_with_its_mask_and_scale(self, weigh: Weigh) -> None:
        found = site(with_softmax(weigh))
        (mask,) = found.find(StepKind.MASK)
        assert (mask.stage, mask.fill) == (Stage.SCORES, -torch.inf)
        assert found.scale is not None
        assert found.scale.value == pytest.approx(HEAD_DIM**-0.5)
        assert (found.causal, found.cross) == (True, False)
        assert len(found.find(StepKind.SOFTMAX)) == 1

    def test_its_weights_are_those_of_the_softmax(self, weigh: Weigh) -> None:
        written, plain = (anatomy(with_softmax(form)) for form in (weigh, lambda scores: scores.softmax(-1)))
        torch.testing.assert_close(written.weights, plain.weights)

    def test_nothing_is_said_about_a_right_one(self, weigh: Weigh) -> None:
        assert list(attn_guard.check(with_softmax(weigh), causal=True)) == []

    def test_a_missing_mask_is_found(self, weigh: Weigh) -> None:
        report = attn_guard.check(with_softmax(weigh, Encoder), causal=True)
        assert set(report.codes) == {"ATN214"}

    def test_a_missing_scale_is_found(self, weigh: Weigh) -> None:
        class Unscaled(Core):
            def scores(self, q: Tensor, k: Tensor) -> Tensor:
                return q @ k.mT

        report = attn_guard.check(with_softmax(weigh, Unscaled), causal=True)
        assert set(report.codes) == {"ATN101"}


def test_division_after_the_product_with_the_value() -> None:
    class Late(Core):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            scores = self.hide(self.scores(q, k))
            raised = (scores - scores.amax(-1, keepdim=True)).exp()
            return self.merge((raised @ v) / raised.sum(-1, keepdim=True))

    module = seeded(Late)
    assert site(module).causal is True
    assert list(attn_guard.check(module, causal=True)) == []


class TestMaskOnTheExponentials:
    def hidden(self, raised: Tensor) -> Tensor:
        return raised * (~later(raised.shape[-1])).float()

    def test_before_the_sum_is_a_mask_of_minus_infinity(self) -> None:
        def weigh(scores: Tensor) -> Tensor:
            raised = self.hidden(scores.exp())
            return raised / raised.sum(-1, keepdim=True)

        module = with_softmax(weigh, Encoder)
        (mask,) = site(module).before_softmax(StepKind.MASK)
        assert mask.fill == -torch.inf
        assert site(module).causal is True
        assert list(attn_guard.check(module, causal=True)) == []

    def test_after_the_sum_is_a_mask_after_the_softmax(self) -> None:
        def weigh(scores: Tensor) -> Tensor:
            raised = scores.exp()
            return self.hidden(raised) / raised.sum(-1, keepdim=True)

        report = attn_guard.check(with_softmax(weigh, Encoder), causal=True)
        assert [finding.code for finding in report] == ["ATN201"]


class KeyTimesQuery(Core):
    """Scores (keys, queries); the softmax runs down the columns."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        weights = self.hide(self.scores(k, q)).softmax(-2)
        return self.merge(weights.mT @ v)

    def hide(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(later(scores.shape[-1]).mT, -torch.inf)


class TurnedBefore(KeyTimesQuery):
    """Scores (keys, queries), turned before mask and softmax."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        scores = self.scores(k, q).mT.masked_fill(later(x.shape[1]), -torch.inf)
        return self.merge(scores.softmax(-1) @ v)


class HeadsLast(Core):
    """Scores (batch, queries, keys, heads), the softmax along axis 2."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.transpose(1, 2) for part in self.heads(x))
        scores = torch.einsum("bihd,bjhd->bijh", q, k) * HEAD_DIM**-0.5
        weights = scores.masked_fill(later(x.shape[1])[:, :, None], -torch.inf).softmax(dim=2)
        return self.out(torch.einsum("bijh,bjhd->bihd", weights, v).flatten(2))


TURNED = [KeyTimesQuery, TurnedBefore, HeadsLast]


@pytest.mark.parametrize("build", TURNED)
class TestAnyOrder:
    def test_query_and_key_are_told_apart(self, build: type[Core]) -> None:
        module = seeded(build)
        found = anatomy(module)
        tape = found.trace.flow.tape
        for part, projection in (("q", found.trace.query_projection), ("k", found.trace.key_projection)):
            assert projection is not None
            assert tape.leaves[min(tape.ancestors(projection.weight))] == f"parameter {part}.weight"
        assert found.site.causal is True
        assert found.blocked is not None
        assert bool((found.blocked == later(5)).all())
        torch.testing.assert_close(found.weights.sum(-1), torch.ones(2, 3, 5))

    def test_silent(self, build: type[Core]) -> None:
        assert list(attn_guard.check(seeded(build), causal=True)) == []


def test_a_mask_of_the_past_on_key_times_query() -> None:
    class UpsideDown(KeyTimesQuery):
        def hide(self, scores: Tensor) -> Tensor:
            return scores.masked_fill(later(scores.shape[-1]), -torch.inf)

    report = attn_guard.check(seeded(UpsideDown), causal=True)
    assert [finding.code for finding in report] == ["ATN205"]


def test_a_weak_fill_on_key_times_query() -> None:
    class Weak(KeyTimesQuery):
        def hide(self, scores: Tensor) -> Tensor:
            return scores.masked_fill(later(scores.shape[-1]).mT, 0.0)

    report = attn_guard.check(seeded(Weak), causal=True)
    assert [finding.code for finding in report] == ["ATN203"]
