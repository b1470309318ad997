"""The calls that the parts of a model receive."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.contract import Contract
from attn_guard.probe.calling import Call, given
from attn_guard.probe.copies import NotCopiedError
from attn_guard.probe.inside import calls_inside
from tests.probe.modules import D, FusedQkv, H, features, seeded


class Layer(nn.Module):
    """Attention whose mask and cache come from the model around it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, x: Tensor, *, mask: Tensor, cache: dict[str, Any]) -> Tensor:
        cache["steps"].append(x.shape[1])
        output: Tensor = self.attention(x, x, x, attn_mask=mask)[0]
        mask.fill_(True)
        return x + output


class Model(nn.Module):
    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.unused = FusedQkv()
        self.fails = fails

    def forward(self, x: Tensor) -> Tensor:
        cache: dict[str, Any] = {"steps": []}
        for layer in self.layers:
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            x = layer(x, mask=mask, cache=cache)
            if self.fails:
                raise RuntimeError("half-way")
        return x


def calls(model: nn.Module, *paths: str) -> dict[str, Call | NotCopiedError]:
    return calls_inside(model, given(features(), None, Contract(), model), paths)


def call(model: nn.Module, path: str) -> Call:
    found = calls(model, path)[path]
    assert isinstance(found, Call)
    return found


def test_inputs_are_as_they_were_before_the_call() -> None:
    first, second = (call(seeded(Model), f"layers.{number}") for number in (0, 1))
    assert first.kwargs["cache"] == {"steps": []}
    assert second.kwargs["cache"] == {"steps": [5]}
    assert not first.kwargs["mask"].all()
    assert torch.equal(first.args[0], features())


def test_what_is_one_tensor_stays_one() -> None:
    query, key, value = call(seeded(Model), "layers.0.attention").args
    assert query is key is value


def test_a_part_that_is_not_called_is_left_out() -> None:
    assert calls(seeded(Model), "unused") == {}


def test_a_part_that_fails_is_known_up_to_there() -> None:
    assert list(calls(seeded(Model, True), "layers.0", "layers.1")) == ["layers.0"]


@pytest.mark.parametrize("fails", [False, True])
def test_no_hook_is_left_and_nothing_is_changed(fails: bool) -> None:
    model = seeded(Model, fails).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    calls(model, "layers.0", "layers.1.attention")
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(part.training for part in model.modules())


def test_the_inputs_of_the_caller_stay() -> None:
    class Writing(Model):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.mul_(2))

    model, x = seeded(Writing), features()
    calls_inside(model, given(x, None, Contract(), model), ["layers.0"])
    assert torch.equal(x, features())


def test_inputs_that_cannot_be_copied() -> None:
    class OnMeta(Model):
        def forward(self, x: Tensor) -> Tensor:
            layer = self.layers[0]
            return layer(x, mask=torch.ones(1, device="meta"), cache={"steps": []})

    found = calls(seeded(OnMeta), "layers.0")["layers.0"]
    assert isinstance(found, NotCopiedError)
    assert "meta" in str(found)


def test_the_mask_of_the_parent_makes_a_part_causal() -> None:
    """Called alone, the attention looks ahead; on the call that it receives it does not."""
    model = seeded(Model)
    part, received = model.get_submodule("layers.0.attention"), call(model, "layers.0.attention")
    assert [finding.code for finding in attn_guard.check(part, causal=True)] == ["ATN214"]
    assert attn_guard.check(part, received.args, received.kwargs, causal=True).ok


def test_the_axis_of_samples_of_a_part_that_works_on_time_first() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.MultiheadAttention(D, H)

        def forward(self, x: Tensor) -> Tensor:
            x = x.transpose(0, 1)
            output: Tensor = self.layer(x, x, x)[0]
            return output.transpose(0, 1)

    received = call(seeded(Turned), "layer")
    assert received.args[0].shape == (5, 2, D)
    assert received.batch_first is False
    assert call(seeded(Model), "layers.0.attention").batch_first is True


def test_samples_that_lie_one_after_another_tell_no_axis() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = FusedQkv()

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.layer(x[None])[0]
            return output

    model = seeded(Flat)
    found = calls_inside(model, given(features()[0], None, Contract(), model), ["layer"])["layer"]
    assert isinstance(found, Call)
    assert found.batch_first is True
