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
from tests.probe.modules import HEAD_DIM, STYLES, D, features, seeded
from tests.probe.silent_modules import Core, Encoder, Parts
from tests.probe.test_softmax import with_softmax

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

    def test_multiplying_by_the_root_is_a_wrong_scale(self) -> None:
        assert codes(with_scores(lambda q, k: q @ k.mT * ROOT), causal=True) == ["ATN102"]


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
