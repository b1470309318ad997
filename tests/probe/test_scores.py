"""What becomes of scores: their scale, the axis of the softmax, how often there is one, and how the weights are
used."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.anatomy import Axis
from tests.probe.modules import HEAD_DIM, STYLES, D, features, later, seeded
from tests.probe.silent_modules import Core, Encoder, Parts
from tests.probe.test_softmax import shifted, with_softmax

ROOT = HEAD_DIM**0.5


def codes(module: nn.Module, **promises: object) -> list[str]:
    report = attn_guard.check(module, preview=True, **promises)  # type: ignore[arg-type]
    return [finding.code for finding in report if finding.fails]


def with_scores(product: Callable[[Tensor, Tensor], Tensor]) -> nn.Module:
    class Scaled(Core):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            return product(q, k)

    return seeded(Scaled)


class WithSdpa(Parts):
    """SDPA on a query and key that were touched before."""

    def __init__(self, query: float = 1.0, key: float = 1.0, scale: float | None = None) -> None:
        super().__init__()
        self.factors, self.given = (query, key), scale

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        q, k = q * self.factors[0], k * self.factors[1]
        return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.given))


class TestDoubleScale:
    @pytest.mark.parametrize(
        "product",
        [
            lambda q, k: (q / ROOT) @ k.mT / ROOT,
            lambda q, k: q @ (k / ROOT).mT / ROOT,
            lambda q, k: (q / ROOT) @ (k / ROOT).mT,
            lambda q, k: (q @ k.mT / ROOT) / ROOT,
            lambda q, k: (q / ROOT) @ k.mT / D**0.5,
            lambda q, k: (q * HEAD_DIM**-0.25) @ (k * HEAD_DIM**-0.25).mT / ROOT,
            lambda q, k: q @ k.mT / HEAD_DIM**-0.5,
        ],
    )
    def test_by_hand(self, product: Callable[[Tensor, Tensor], Tensor]) -> None:
        assert codes(with_scores(product), causal=True) == ["ATN103"]

    @pytest.mark.parametrize("factors", [(1 / ROOT, 1.0), (1.0, 1 / ROOT), (HEAD_DIM**-0.25, HEAD_DIM**-0.25)])
    def test_by_hand_and_by_the_kernel(self, factors: tuple[float, float]) -> None:
        assert codes(seeded(WithSdpa, *factors), causal=True) == ["ATN103"]

    @pytest.mark.parametrize("factors", [(1.0, 1.0, None), (1 / ROOT, 1.0, 1.0), (1.0, 1.0, HEAD_DIM**-0.5)])
    def test_one_scale_is_right(self, factors: tuple[float, float, float | None]) -> None:
        assert codes(seeded(WithSdpa, *factors), causal=True) == []

    @pytest.mark.parametrize(
        "product",
        [
            lambda q, k: (q * HEAD_DIM**-0.25) @ (k * HEAD_DIM**-0.25).mT,
            lambda q, k: (q / ROOT * 2) @ (k / 2).mT,
        ],
    )
    def test_parts_of_one_scale_are_right(self, product: Callable[[Tensor, Tensor], Tensor]) -> None:
        assert codes(with_scores(product), causal=True) == []

    def test_a_declared_one_is_right(self) -> None:
        module = with_scores(lambda q, k: (q / ROOT) @ k.mT / ROOT)
        assert codes(module, causal=True, scale=1 / HEAD_DIM) == []

    def test_a_wrong_scale_handed_to_the_kernel_is_one_scale(self) -> None:
        (found,) = attn_guard.check(seeded(WithSdpa, scale=1 / HEAD_DIM))
        assert (found.code, found.message) == ("ATN102", "scores are divided by head_dim without the root")

    def test_multiplying_by_the_root_is_a_wrong_scale(self) -> None:
        assert codes(with_scores(lambda q, k: q @ k.mT * ROOT), causal=True) == ["ATN102"]


class Inner(nn.Module):
    """Heads that are together narrower than the features; the scale is stated in an attribute."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(22, 20) for _ in range(3))
        self.out = nn.Linear(20, 22)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (4, 5)).transpose(1, 2) for part in (self.q, self.k, self.v))
        merged: Tensor = self.out(((q @ k.mT * self.scale).softmax(-1) @ v).transpose(1, 2).flatten(2))
        return merged


class TestStatedScale:
    def test_the_width_of_all_heads_is_no_design(self) -> None:
        (found,) = attn_guard.check(seeded(Inner, 20**-0.5), torch.randn(2, 7, 22))
        assert (found.code, found.message) == ("ATN102", "scores are divided by √(heads * head_dim)")

    @pytest.mark.parametrize("scale", [5**-0.5, 0.3])
    def test_the_right_one_and_one_that_fits_no_size(self, scale: float) -> None:
        assert list(attn_guard.check(seeded(Inner, scale), torch.randn(2, 7, 22))) == []


class TestScaleAfterSoftmax:
    @pytest.mark.parametrize("factor", [1 / ROOT, D**-0.5, 1 / HEAD_DIM])
    def test_on_the_weights(self, factor: float) -> None:
        class Late(Core):
            def scores(self, q: Tensor, k: Tensor) -> Tensor:
                return q @ k.mT

            def weigh(self, scores: Tensor) -> Tensor:
                return scores.softmax(-1) * factor

        assert codes(seeded(Late), causal=True) == ["ATN105"]

    def test_on_the_context(self) -> None:
        class Later(Core):
            def scores(self, q: Tensor, k: Tensor) -> Tensor:
                return q @ k.mT

            def merge(self, context: Tensor) -> Tensor:
                return super().merge(context / ROOT)

        assert codes(seeded(Later), causal=True) == ["ATN105"]

    def test_another_factor_on_the_weights_is_a_choice(self) -> None:
        class Damped(Core):
            def weigh(self, scores: Tensor) -> Tensor:
                return scores.softmax(-1) * 0.37

        assert codes(seeded(Damped), causal=True) == []


class TestSoftmaxAxis:
    @pytest.mark.parametrize(("axis", "over"), [(-2, Axis.QUERIES), (1, Axis.HEADS), (0, Axis.BATCH)])
    @pytest.mark.parametrize("base", [Encoder, Core])
    def test_other_axes(self, axis: int, over: Axis, base: type[Core]) -> None:
        module = with_softmax(lambda scores: scores.softmax(dim=axis), base)
        (found,) = attn_guard.xray(module, (features(),), {}).sites
        assert found.site.softmax_over is over
        assert codes(module, causal=True if base is Core else None) == ["ATN104"]

    def test_written_out(self) -> None:
        def weigh(scores: Tensor) -> Tensor:
            raised = (scores - scores.amax(dim=-2, keepdim=True)).exp()
            return raised / raised.sum(dim=-2, keepdim=True)

        assert codes(with_softmax(weigh, Encoder)) == ["ATN104"]

    def test_letters_in_another_order(self) -> None:
        class Letters(Encoder):
            axis = 1

            def forward(self, x: Tensor) -> Tensor:
                q, k, v = (part.transpose(1, 2) for part in self.heads(x))
                scores = torch.einsum("bihd,bjhd->bijh", q, k) * HEAD_DIM**-0.5
                return self.out(torch.einsum("bijh,bjhd->bihd", scores.softmax(dim=self.axis), v).flatten(2))

        assert codes(seeded(Letters)) == ["ATN104"]
        module = seeded(Letters)
        module.axis = 2  # type: ignore[assignment]
        assert codes(module) == []

    def test_rows_of_all_samples_in_one_axis(self) -> None:
        class Flat(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.q, self.k, self.v = (nn.Linear(D, D) for _ in range(3))

            def forward(self, x: Tensor) -> Tensor:
                q, k, v = self.q(x), self.k(x), self.v(x)
                batch, time, _ = x.shape
                scores = (q @ k.mT * D**-0.5).view(batch * time, time)
                return scores.softmax(dim=0).view(batch, time, time) @ v

        assert codes(seeded(Flat)) == ["ATN104"]

    def test_between_two_sequences(self) -> None:
        class Cross(nn.Module):
            def __init__(self, axis: int) -> None:
                super().__init__()
                self.q, self.k, self.v = (nn.Linear(D, D) for _ in range(3))
                self.axis = axis

            def forward(self, x: Tensor, memory: Tensor) -> Tensor:
                q, k, v = self.q(x), self.k(memory), self.v(memory)
                return (q @ k.mT * D**-0.5).softmax(self.axis) @ v

        inputs = (features(time=5), features(time=7))
        assert [f.code for f in attn_guard.check(seeded(Cross, -2), inputs)] == ["ATN104"]
        assert list(attn_guard.check(seeded(Cross, -1), inputs)) == []

    def test_slots_that_compete_for_inputs_are_a_choice(self) -> None:
        class Slots(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.slots = nn.Parameter(torch.randn(4, D))
                self.q, self.k, self.v = (nn.Linear(D, D) for _ in range(3))

            def forward(self, x: Tensor) -> Tensor:
                q, k, v = self.q(self.slots).expand(len(x), -1, -1), self.k(x), self.v(x)
                weights = (q @ k.mT * D**-0.5).softmax(dim=1) + 1e-8
                return (weights / weights.sum(dim=-1, keepdim=True)) @ v

        assert codes(seeded(Slots)) == []

    def test_slots_that_attend_again_ask_what_they_were_made_of(self) -> None:
        class Again(nn.Module):
            def __init__(self, chained: bool) -> None:
                super().__init__()
                self.chained = chained
                self.slots = nn.Parameter(torch.randn(4, D))
                self.q, self.k, self.v = (nn.Linear(D, D) for _ in range(3))

            def forward(self, x: Tensor) -> Tensor:
                k = self.k(x)
                v = self.v(k if self.chained else x)
                slots = self.slots.expand(len(x), -1, -1)
                for _ in range(3):
                    weights = (self.q(slots) @ k.mT * D**-0.5).softmax(dim=1) + 1e-8
                    slots = slots + (weights / weights.sum(dim=-1, keepdim=True)) @ v
                return slots

        assert codes(seeded(Again, False)) == []
        assert "ATN403" in codes(seeded(Again, True))


class TestWeightsTransposed:
    @pytest.mark.parametrize("base", [Encoder, Core])
    def test_in_self_attention(self, base: type[Core]) -> None:
        class Transposed(base):  # type: ignore[misc, valid-type]
            def weigh(self, scores: Tensor) -> Tensor:
                return scores.softmax(-1).mT

        assert codes(seeded(Transposed), causal=True if base is Core else None) == ["ATN107"]

    def test_a_value_that_is_turned_is_right(self) -> None:
        class Turned(Core):
            def forward(self, x: Tensor) -> Tensor:
                q, k, v = self.heads(x)
                weights = self.hide(self.scores(q, k)).softmax(-1)
                return self.merge((v.mT @ weights.mT).mT)

        assert codes(seeded(Turned), causal=True) == []

    def test_a_turned_value_with_weights_that_are_not(self) -> None:
        class Turned(Encoder):
            def forward(self, x: Tensor) -> Tensor:
                q, k, v = self.heads(x)
                return self.merge((v.mT @ self.scores(q, k).softmax(-1)).mT)

        assert codes(seeded(Turned)) == ["ATN107"]


@pytest.mark.parametrize("style", [*STYLES])
def test_both_axes_of_every_style_are_the_keys(style: str) -> None:
    (found,) = attn_guard.xray(seeded(STYLES[style]), (features(),), {}).sites
    assert (found.site.softmax_over, found.site.summed_over) == (Axis.KEYS, Axis.KEYS)


class TestSoftmaxTwice:
    @pytest.mark.parametrize("base", [Encoder, Core])
    @pytest.mark.parametrize("first", [shifted, lambda scores: scores.softmax(-1)])
    @pytest.mark.parametrize("second", [shifted, lambda weights: weights.softmax(-1)])
    def test_along_one_axis(
        self, base: type[Core], first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor]
    ) -> None:
        module = with_softmax(lambda scores: second(first(scores)), base)
        assert codes(module, causal=True if base is Core else None) == ["ATN106"]

    def test_a_mask_between_is_no_mask_after_the_softmax(self) -> None:
        module = with_softmax(
            lambda scores: scores.softmax(-1).masked_fill(later(scores.shape[-1]), -torch.inf).softmax(-1), Encoder
        )
        assert codes(module, causal=True) == ["ATN106"]

    def test_another_function_between_is_a_choice(self) -> None:
        assert codes(with_softmax(lambda scores: scores.softmax(-1).log().softmax(-1)), causal=True) == []

    def test_another_axis_is_a_choice(self) -> None:
        assert codes(with_softmax(lambda scores: scores.softmax(-1).softmax(1), Encoder)) == []


class TestNoSoftmax:
    @pytest.mark.parametrize("base", [Encoder, Core])
    def test_scaled_or_masked_for_one(self, base: type[Core]) -> None:
        assert codes(with_softmax(lambda scores: scores, base), causal=True if base is Core else None) == ["ATN106"]

    def test_a_softmax_that_is_left_unused(self) -> None:
        class Unused(Encoder):
            def weigh(self, scores: Tensor) -> Tensor:
                scores.softmax(-1)
                return scores.masked_fill(later(scores.shape[-1]), 0.0)

        assert codes(seeded(Unused), causal=True) == ["ATN106"]

    @pytest.mark.parametrize(
        "weigh",
        [
            torch.sigmoid,
            lambda scores: torch.relu(scores).square(),
            lambda scores: scores / scores.sum(-1, keepdim=True),
            lambda scores: scores.tanh(),
            lambda scores: scores.masked_fill(later(scores.shape[-1]), 0.0),
            lambda scores: scores.tril(),
            lambda scores: scores * 0.9 ** torch.arange(scores.shape[-1]),
        ],
    )
    def test_another_weight_is_a_choice(self, weigh: Callable[[Tensor], Tensor]) -> None:
        assert codes(with_softmax(weigh, Encoder)) == []

    def test_a_norm_of_the_context_takes_its_place(self) -> None:
        class Retention(Encoder):
            def __init__(self) -> None:
                super().__init__()
                self.norm = nn.LayerNorm(HEAD_DIM)

            def forward(self, x: Tensor) -> Tensor:
                q, k, v = self.heads(x)
                return self.merge(self.norm(self.scores(q, k) @ v))

        assert codes(seeded(Retention)) == []

    def test_features_of_query_and_key_take_its_place(self) -> None:
        class Features(Encoder):
            def scores(self, q: Tensor, k: Tensor) -> Tensor:
                return (F.elu(q) + 1) @ (F.elu(k) + 1).mT * HEAD_DIM**-0.5

            def weigh(self, scores: Tensor) -> Tensor:
                return scores

        assert codes(seeded(Features)) == []

    @pytest.mark.parametrize("scale", [1.0, 0.2])
    def test_an_ordinary_product_of_three_is_a_choice(self, scale: float) -> None:
        class Product(Encoder):
            def scores(self, q: Tensor, k: Tensor) -> Tensor:
                return q @ k.mT * scale

            def weigh(self, scores: Tensor) -> Tensor:
                return scores

        assert codes(seeded(Product)) == []


class TestUnsafeSoftmax:
    def test_exp_and_sum(self) -> None:
        def weigh(scores: Tensor) -> Tensor:
            raised = scores.exp()
            return raised / raised.sum(-1, keepdim=True)

        (found,) = attn_guard.check(with_softmax(weigh), causal=True, preview=True)
        assert (found.code, found.severity) == ("ATN108", attn_guard.Severity.WARNING)
        assert list(attn_guard.check(with_softmax(weigh), causal=True)) == []

    def test_scores_that_something_bounds(self) -> None:
        class Capped(Core):
            def hide(self, scores: Tensor) -> Tensor:
                return super().hide(20 * torch.tanh(scores / 20))

            def weigh(self, scores: Tensor) -> Tensor:
                raised = scores.exp()
                return raised / raised.sum(-1, keepdim=True)

        assert codes(seeded(Capped), causal=True) == []


class TestMaskScaled:
    @pytest.mark.parametrize(("fill", "found"), [(-2e4, True), (-torch.inf, False), (-1e9, False)])
    def test_masked_before_the_scale(self, fill: float, found: bool) -> None:
        class Early(Encoder):
            def scores(self, q: Tensor, k: Tensor) -> Tensor:
                hidden = (q @ k.mT).masked_fill(later(q.shape[-2]), fill)
                return hidden * HEAD_DIM**-0.5

        assert codes(seeded(Early), causal=True) == (["ATN223"] if found else [])

    def test_a_weak_fill_is_weak_before_that(self) -> None:
        class Early(Encoder):
            def scores(self, q: Tensor, k: Tensor) -> Tensor:
                return (q @ k.mT).masked_fill(later(q.shape[-2]), -1.0) * HEAD_DIM**-0.5

        assert codes(seeded(Early), causal=True) == ["ATN203"]


class Kernel(Parts):
    """φ(q) (φ(k)ᵀ v), normalised in one way or another."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        q, k = self.features(q), self.features(k)
        return self.merge(self.normalised(q @ (k.mT @ v), q, k))

    def features(self, x: Tensor) -> Tensor:
        return F.elu(x) + 1

    def normalised(self, context: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return context / (q @ k.sum(dim=-2, keepdim=True).mT)


class TestLinearNormaliser:
    def test_right(self) -> None:
        assert codes(seeded(Kernel)) == []

    def test_missing(self) -> None:
        class Missing(Kernel):
            def normalised(self, context: Tensor, q: Tensor, k: Tensor) -> Tensor:
                return context

        assert codes(seeded(Missing)) == ["ATN109"]

    def test_one_for_all_queries(self) -> None:
        class Shared(Kernel):
            def normalised(self, context: Tensor, q: Tensor, k: Tensor) -> Tensor:
                return context / (q @ k.mT).sum(dim=(-2, -1), keepdim=True)

        assert codes(seeded(Shared)) == ["ATN109"]

    def test_a_norm_takes_its_place(self) -> None:
        class Normed(Kernel):
            def normalised(self, context: Tensor, q: Tensor, k: Tensor) -> Tensor:
                return F.layer_norm(context, (HEAD_DIM,))

        assert codes(seeded(Normed)) == []

    def test_features_that_may_be_negative_need_none(self) -> None:
        class Signed(Kernel):
            def features(self, x: Tensor) -> Tensor:
                return x.tanh()

            def normalised(self, context: Tensor, q: Tensor, k: Tensor) -> Tensor:
                return context

        assert codes(seeded(Signed)) == []

    def test_features_that_sum_to_one_need_none(self) -> None:
        class Efficient(Parts):
            def forward(self, x: Tensor) -> Tensor:
                q, k, v = self.heads(x)
                return self.merge(q.softmax(-1) @ (k.softmax(-2).mT @ v))

        assert codes(seeded(Efficient)) == []
