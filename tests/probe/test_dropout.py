"""Dropout: where it is, in which mode, and that it stays unreported where it belongs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.anatomy import Stage, StepKind
from attn_guard.contract import Contract
from attn_guard.findings import Finding, Severity
from attn_guard.probe.training import rates
from attn_guard.probe.xray import find_call
from tests.probe.modules import HEAD_DIM, STYLES, FusedQkv, features, later, seeded
from tests.probe.silent_modules import Core, Parts


def found(module: nn.Module) -> list[Finding]:
    return [finding for finding in attn_guard.check(module, preview=True) if finding.code[:4] == "ATN5"]


class Dropping(Parts):
    """Attention with a dropout of any kind at any place, in any mode."""

    def __init__(self, drop: Callable[[nn.Module, Tensor], Tensor], place: str, rate: float = 0.3) -> None:
        super().__init__()
        self.drop, self.place, self.dropout = drop, place, rate
        self.layer = nn.Dropout(rate)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        scores = self.at("scores", self.scores(self.at("query", q), k).masked_fill(later(x.shape[1]), -torch.inf))
        weights = self.at("weights", scores.softmax(-1))
        return self.at("context", self.merge(weights @ v))

    def at(self, place: str, value: Tensor) -> Tensor:
        return self.drop(self, value) if place == self.place else value


def layer(module: nn.Module, value: Tensor) -> Tensor:
    dropped: Tensor = module.layer(value)  # type: ignore[operator]
    return dropped


def guarded(module: nn.Module, value: Tensor) -> Tensor:
    return F.dropout(value, module.dropout, training=module.training)  # type: ignore[arg-type]


def unguarded(module: nn.Module, value: Tensor) -> Tensor:
    return F.dropout(value, module.dropout)  # type: ignore[arg-type]


def fresh(module: nn.Module, value: Tensor) -> Tensor:
    return nn.Dropout(module.dropout)(value)  # type: ignore[arg-type]


def by_hand(module: nn.Module, value: Tensor) -> Tensor:
    rate: float = module.dropout  # type: ignore[assignment]
    return value * (torch.rand_like(value) >= rate) / (1 - rate)


def drop_key(module: nn.Module, value: Tensor) -> Tensor:
    """Scores hidden by chance with a large negative number (Li et al. 2023): a mask, no dropout."""
    hidden = torch.bernoulli(torch.full_like(value, 0.3)) if module.training else torch.zeros_like(value)
    return value + hidden * -1e12


@pytest.mark.parametrize("place", ["query", "scores", "weights", "context"])
@pytest.mark.parametrize("drop", [unguarded, fresh, by_hand])
def test_dropout_in_eval(drop: Callable[[nn.Module, Tensor], Tensor], place: str) -> None:
    report = [finding for finding in found(seeded(Dropping, drop, place)) if finding.code == "ATN501"]
    assert [(finding.severity, place in finding.message) for finding in report] == [(Severity.ERROR, True)]


@pytest.mark.parametrize("place", ["query", "scores", "weights", "context"])
@pytest.mark.parametrize("drop", [layer, guarded, drop_key])
def test_dropout_that_follows_the_mode(drop: Callable[[nn.Module, Tensor], Tensor], place: str) -> None:
    report = found(seeded(Dropping, drop, place))
    wrong = place == "scores" and drop is not drop_key
    assert [finding.code for finding in report] == (["ATN502"] if wrong else [])


@pytest.mark.parametrize(("drop", "code"), [(layer, "ATN502"), (guarded, "ATN502"), (unguarded, "ATN501")])
def test_a_rate_of_0_is_a_warning(drop: Callable[[nn.Module, Tensor], Tensor], code: str) -> None:
    report = found(seeded(Dropping, drop, "scores", 0.0))
    assert (code, Severity.WARNING) in [(finding.code, finding.severity) for finding in report]
    assert all(finding.severity is Severity.WARNING for finding in report)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_a_fused_call(rate: float) -> None:
    class Fused(Parts):
        def __init__(self, guard: bool) -> None:
            super().__init__()
            self.guard, self.attn_drop = guard, nn.Dropout(rate)

        def forward(self, x: Tensor) -> Tensor:
            p = self.attn_drop.p if self.training or not self.guard else 0.0
            return self.merge(F.scaled_dot_product_attention(*self.heads(x), dropout_p=p))

    assert [finding.code for finding in found(seeded(Fused, False))] == ["ATN501"]
    assert found(seeded(Fused, True)) == []


def test_dropout_outside_attention_is_left_alone() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.head = FusedQkv(), nn.Linear(21, 5)

        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(self.head(self.attn(x)), 0.5)

    assert found(seeded(Model)) == []


@pytest.mark.parametrize("style", STYLES)
def test_right_styles(style: str) -> None:
    assert found(seeded(STYLES[style])) == []


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_built_in_layers(dropout: float) -> None:
    for build in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer):
        assert found(build(14, 2, 16, dropout, batch_first=True)) == []
    assert found(nn.MultiheadAttention(14, 2, dropout, batch_first=True)) == []


def test_dropout_is_a_step_of_the_site() -> None:
    with torch.random.fork_rng():
        site = attn_guard.xray(seeded(Dropping, unguarded, "weights"), features()).sites[0].site
    (step,) = site.find(StepKind.DROPOUT)
    assert step.stage is Stage.WEIGHTS
    assert site.scale is not None
    assert site.scale.is_right
    assert site.after_softmax(StepKind.MASK) == ()


def test_a_draw_that_keeps_everything_is_no_scale() -> None:
    class Lucky(Core):
        def scores(self, q: Tensor, k: Tensor) -> Tensor:
            kept = torch.bernoulli(torch.ones(q.shape)) / 0.5
            return q @ k.mT * HEAD_DIM**-0.5 * kept[..., :1]

    site = attn_guard.xray(seeded(Lucky), features()).sites[0].site
    assert site.scale is not None
    assert site.scale.is_right


def test_rates_and_the_module_are_left_as_they_were() -> None:
    module = seeded(Dropping, unguarded, "scores", 0.0)
    before = {**vars(module)}
    seen, _ = find_call(module, Contract())
    assert seen is not None
    assert seen.modes.training.dropouts
    assert seen.modes.evaluation.dropouts
    assert rates(module) == [(module, "dropout", 0.0), (module.layer, "p", 0.0)]
    assert {**vars(module)} == before
    assert not any(child.training for child in module.modules())


def test_rates_that_drop_whole_branches_are_not_raised() -> None:
    module = nn.Linear(2, 2)
    module.drop_path = 0.0  # type: ignore[assignment]
    module.layerdrop = 0.0  # type: ignore[assignment]
    module.attn_dropout = 0.0  # type: ignore[assignment]
    assert rates(module) == [(module, "attn_dropout", 0.0)]


def test_a_module_that_fails_in_training_mode() -> None:
    class Picky(FusedQkv):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                raise ValueError("needs targets")
            return super().forward(x)

    assert found(seeded(Picky, dropout=0.1)) == []


def test_a_cache_that_is_given_does_not_grow_by_the_run_in_training() -> None:
    class Cached(FusedQkv):
        def forward(self, x: Tensor, cache: list[int] | None = None) -> Tensor:
            if cache is not None:
                cache.append(len(x))
            return super().forward(x)

    seen = attn_guard.xray(seeded(Cached, dropout=0.1), features(), {"cache": [0]})
    before = list(seen.call.kwargs["cache"])
    assert seen.modes.training.dropouts
    assert seen.call.kwargs["cache"] == before
