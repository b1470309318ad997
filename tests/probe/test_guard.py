"""The wrapper: outputs as without it, one probe per kind of call, and what it does with findings."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.errors import UsageError
from attn_guard.probe.guard import AttentionWarning
from tests.probe.modules import CAUSAL_STYLES, STYLES, CrossAttention, FusedQkv, features, seeded
from tests.probe.silent_modules import Cached, Encoder


@pytest.mark.parametrize("style", ["fused qkv", "sdpa", "built-in", "built-in, weights"])
@pytest.mark.parametrize("training", [True, False])
def test_outputs_are_bit_identical(style: str, training: bool) -> None:
    module = seeded(STYLES[style]).train(training)
    guarded = attn_guard.guard(module)
    for _ in range(2):
        assert torch.equal(guarded(features()), module(features()))


def test_dropout_draws_the_same_numbers() -> None:
    module = seeded(FusedQkv, dropout=0.5).train()
    outputs = []
    for called in (module, attn_guard.guard(module)):
        torch.manual_seed(0)
        outputs.append([called(features()) for _ in range(3)])
    assert all(torch.equal(plain, guarded) for plain, guarded in zip(*outputs, strict=True))
    assert not torch.equal(outputs[0][0], outputs[0][1])


def test_gradients_are_the_same() -> None:
    module = seeded(FusedQkv).train()
    grads = []
    for called in (module, attn_guard.guard(module)):
        module.zero_grad()
        called(features()).square().sum().backward()
        grads.append([parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None])
    assert len(grads[0]) == 4
    assert all(torch.equal(plain, guarded) for plain, guarded in zip(*grads, strict=True))


def test_a_cache_grows_by_the_users_calls_only() -> None:
    module = seeded(Cached)
    guarded = attn_guard.guard(module, on_finding="collect")
    with torch.no_grad():
        guarded(features(time=5))
    past: Any = module.past
    assert past[0].shape[2] == 5


def test_once_for_each_kind_of_call() -> None:
    guarded = attn_guard.guard(seeded(FusedQkv))
    for time in (5, 5, 7, 5, 7):
        guarded(features(time=time))
    assert len(guarded.reports) == 2
    guarded.train()
    guarded(features(time=5))
    assert len(guarded.reports) == 3


def test_names_of_arguments_are_part_of_the_kind() -> None:
    guarded = attn_guard.guard(seeded(CrossAttention))
    guarded(features(), features(time=7))
    guarded(features(), memory=features(time=7))
    guarded(features(), memory=features(time=7))
    assert len(guarded.reports) == 2


class TestFindings:
    def test_warn(self) -> None:
        guarded = attn_guard.guard(seeded(Encoder), causal=True)
        with pytest.warns(AttentionWarning, match="ATN214") as caught:
            guarded(features())
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            guarded(features())

    def test_raise(self) -> None:
        guarded = attn_guard.guard(seeded(Encoder), on_finding="raise", causal=True)
        with pytest.raises(attn_guard.AttentionFault) as raised:
            guarded(features())
        assert raised.value.report.codes == {"ATN214": 1}

    def test_collect(self) -> None:
        guarded = attn_guard.guard(seeded(Encoder), on_finding="collect", causal=True)
        guarded(features())
        (report,) = guarded.reports
        assert report.codes == {"ATN214": 1}

    def test_nothing_is_said_about_what_is_right(self) -> None:
        guarded = attn_guard.guard(seeded(CAUSAL_STYLES["fused qkv"]), on_finding="raise", causal=True)
        guarded(features())
        assert [report.ok for report in guarded.reports] == [True]

    def test_options_of_check_are_passed_on(self) -> None:
        guarded = attn_guard.guard(seeded(Encoder), on_finding="raise", causal=True, ignore=["ATN214"])
        guarded(features())

    def test_the_exception_of_the_module_passes(self) -> None:
        guarded = attn_guard.guard(seeded(FusedQkv))
        with pytest.raises(RuntimeError, match="shape"):
            guarded(features(width=2))
        assert guarded.reports == []


class TestInItsPlace:
    def test_attributes_show_through(self) -> None:
        module = seeded(FusedQkv)
        guarded = attn_guard.guard(module)
        assert guarded.heads == 3
        assert guarded.in_proj is module.in_proj
        with pytest.raises(AttributeError, match="no_such"):
            _ = guarded.no_such

    def test_modes_parameters_and_state(self) -> None:
        module = seeded(FusedQkv)
        guarded = attn_guard.guard(module)
        assert guarded.train().module.training
        assert [*guarded.parameters()] == [*module.parameters()]
        assert set(guarded.state_dict()) == {f"module.{name}" for name in module.state_dict()}
        assert guarded.module is module

    def test_inside_a_model(self) -> None:
        first, second = seeded(FusedQkv), seeded(FusedQkv)
        model = nn.Sequential(attn_guard.guard(first), second)
        assert torch.equal(model(features()), second(first(features())))

    def test_the_guarded_model_can_be_checked(self) -> None:
        report = attn_guard.check(attn_guard.guard(seeded(FusedQkv)), features())
        assert report.ok
        assert len(report.sites) == 1


class TestUsage:
    def test_no_module(self) -> None:
        with pytest.raises(UsageError, match=r"guard\(\) takes a torch.nn.Module, got function"):
            attn_guard.guard(lambda x: x)  # type: ignore[arg-type]

    def test_another_reaction(self) -> None:
        with pytest.raises(UsageError, match="'shout': expected 'warn', 'raise' or 'collect'"):
            attn_guard.guard(seeded(FusedQkv), on_finding="shout")  # type: ignore[arg-type]


def test_the_arguments_are_copied_before_the_call() -> None:
    class Writing(Encoder):
        def forward(self, x: Tensor) -> Tensor:
            attended = super().forward(x)
            x.fill_(torch.nan)
            return attended

    guarded = attn_guard.guard(seeded(Writing), on_finding="collect", causal=True)
    with torch.no_grad():
        guarded(features())
    assert guarded.reports[0].codes == {"ATN214": 1}


def test_one_tensor_given_twice_stays_one() -> None:
    attention = seeded(lambda: nn.MultiheadAttention(21, 3, batch_first=True))
    guarded = attn_guard.guard(attention, on_finding="collect", causal=True)
    x = features()
    guarded(x, x, x)
    assert guarded.reports[0].codes == {"ATN214": 1}
    assert guarded.reports[0].sites[0].cross is False
