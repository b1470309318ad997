"""Modules around modules and layers made of others: probed as usual, or declined with the reason."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import attn_guard
from attn_guard.probe.calling import bound, given, parameters_of
from attn_guard.probe.wrappers import original, unreadable
from tests.probe.modules import D, FusedQkv, features, seeded
from tests.probe.silent_modules import Core

CLEAN: list[str] = []


def codes(module: nn.Module, args: Any = None, **promises: Any) -> list[str]:
    report = attn_guard.check(module, args, **promises)
    assert report.sites, str(report)
    return [finding.code for finding in report]


class PassesOn(nn.Module):
    """What sharded and adapted models are wrapped in: it takes whatever comes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


class Masked(Core):
    """Attention that takes a padding mask and reads it, or not."""

    def __init__(self, reads: bool) -> None:
        super().__init__()
        self.reads = reads

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        scores = self.scores(q, k)
        if key_padding_mask is not None and self.reads:
            scores = scores.masked_fill(key_padding_mask[:, None, None, :], -torch.inf)
        return self.merge(scores.softmax(-1) @ v)


class TestAroundAModule:
    def test_data_parallel(self) -> None:
        module = seeded(FusedQkv)
        assert original(nn.DataParallel(module)) is module
        assert codes(nn.DataParallel(module)) == CLEAN

    def test_what_wraps_itself_around_a_compiled_module(self) -> None:
        module = seeded(FusedQkv)
        compiled: Any = torch.compile(module, backend="eager")
        assert original(nn.DataParallel(compiled)) is module

    @pytest.mark.parametrize("depth", [1, 2])
    def test_a_wrapper_that_takes_whatever_comes_is_called_as_what_it_wraps(self, depth: int) -> None:
        module: nn.Module = seeded(Masked, True)
        for _ in range(depth):
            module = PassesOn(module)
        assert list(parameters_of(module)) == ["x", "key_padding_mask"]
        assert codes(module) == CLEAN

    def test_the_names_of_its_arguments(self) -> None:
        module, x = PassesOn(seeded(Masked, True)), features()
        assert bound(module, given(x, None, attn_guard.Contract(), module)) == {"x": x}

    def test_a_fault_inside_is_found(self) -> None:
        (finding,) = attn_guard.check(PassesOn(seeded(Masked, False)))
        assert finding.code == "ATN212"
        assert finding.location.module == "module"

    def test_a_module_named_module_is_not_left_out(self) -> None:
        class Residual(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.module = FusedQkv(causal=True)

            def forward(self, x: Tensor) -> Tensor:
                return x + x.flip(1) + self.module(x)

        module = seeded(Residual)
        assert original(module) is module
        assert codes(module, causal=True) in (["ATN214"], ["ATN405"])


class LowRank(nn.Module):
    """A linear layer with a trained difference of low rank, Hu et al. 2021."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base = base
        self.down = nn.ModuleDict({"default": nn.Linear(base.in_features, rank, bias=False)})
        self.up = nn.ModuleDict({"default": nn.Linear(rank, base.out_features, bias=False)})
        self.scaling = 16 / rank

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up["default"](self.down["default"](x)) * self.scaling


class Merged(nn.Module):
    """The same with the difference added to the weight."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.weight, self.bias = base.weight, base.bias
        self.a, self.b = nn.Parameter(torch.randn(rank, D)), nn.Parameter(torch.randn(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight + 0.5 * self.b @ self.a, self.bias)


def adapted(module: nn.Module, layer: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, layer(child))
    return module


LAYERS = [LowRank, Merged, parametrizations.weight_norm, parametrizations.spectral_norm]


class TestLayersMadeOfOthers:
    @pytest.mark.parametrize("layer", LAYERS)
    def test_right(self, layer: Callable[[nn.Linear], nn.Module]) -> None:
        module = adapted(seeded(FusedQkv, causal=True), layer)
        before = {name: value.clone() for name, value in module.state_dict().items()}
        assert codes(module, causal=True) == CLEAN
        after = module.state_dict()
        assert all(torch.equal(after[name], value) for name, value in before.items())

    @pytest.mark.parametrize("layer", LAYERS)
    def test_a_leak(self, layer: Callable[[nn.Linear], nn.Module]) -> None:
        assert codes(adapted(seeded(FusedQkv), layer), causal=True) == ["ATN214"]

    @pytest.mark.parametrize("layer", LAYERS)
    def test_a_wrong_scale(self, layer: Callable[[nn.Linear], nn.Module]) -> None:
        class Unscaled(FusedQkv):
            def forward(self, x: Tensor) -> Tensor:
                q, k, v = (part.unflatten(-1, (3, -1)).transpose(1, 2) for part in self.in_proj(x).chunk(3, -1))
                return self.out_proj(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))

        assert codes(adapted(seeded(Unscaled), layer)) == ["ATN101"]


class TestShared:
    def test_one_layer_run_twice(self) -> None:
        layer = FusedQkv()
        report = attn_guard.check(seeded(lambda: nn.Sequential(layer, layer)))
        assert list(report) == []
        assert [site.name for site in report.sites] == ["0", "0"]

    def test_a_layer_listed_twice(self) -> None:
        class Listed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                layer = FusedQkv()
                self.layers = nn.ModuleList([layer, FusedQkv(), layer])

            def forward(self, x: Tensor) -> Tensor:
                for layer in self.layers:
                    x = x + layer(x)
                return x

        report = attn_guard.check(seeded(Listed))
        assert list(report) == []
        assert [site.name for site in report.sites] == ["layers.0", "layers.1", "layers.0"]

    def test_tied_weights(self) -> None:
        module, other = seeded(FusedQkv), nn.Linear(D, D)
        other.weight = module.get_parameter("out_proj.weight")
        assert codes(nn.Sequential(module, other)) == CLEAN


class Plain(Tensor):
    """A subclass that computes as any tensor does."""


class Ciphered(Tensor):
    """A subclass with a way of its own, as quantised weights have."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError(f"{func} is computed elsewhere")


def note(module: nn.Module, args: Any = None) -> str:
    (finding,) = attn_guard.check(module, args)
    assert finding.code == "ATN903"
    assert "was not looked at" in finding.message
    return finding.notes[0]


class TestDeclined:
    def test_dynamic_quantisation(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                module = torch.ao.quantization.quantize_dynamic(seeded(FusedQkv), {nn.Linear})  # type: ignore[no-untyped-call]
            except RuntimeError as error:
                pytest.skip(f"no quantised kernels here: {error}")
        assert "range of all its inputs" in note(module)

    def test_a_parameter_without_a_shape(self) -> None:
        module = FusedQkv()
        module.in_proj = nn.LazyLinear(3 * D)
        assert "no shape before the first call" in note(module)

    def test_weights_of_a_kind_of_their_own(self) -> None:
        module = seeded(FusedQkv)
        module.register_buffer("packed", Tensor._make_subclass(Ciphered, torch.randn(3 * D, D)))
        assert note(module) == "a Ciphered computes in a way of its own"

    def test_a_subclass_that_computes_as_any_tensor_is_probed(self) -> None:
        module = seeded(FusedQkv)
        layer = module.get_submodule("in_proj")
        layer.weight = nn.Parameter(torch.randn(3 * D, D).as_subclass(Plain))
        assert codes(module) == CLEAN
        assert codes(module, features().as_subclass(Plain)) == CLEAN

    def test_inputs_without_positions(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nested = torch.nested.nested_tensor([torch.randn(3, D), torch.randn(2, D)], layout=torch.jagged)
        assert unreadable(FusedQkv(), nested)
        assert "sparse" in unreadable(FusedQkv(), torch.eye(3).to_sparse())

    def test_on_the_meta_device(self) -> None:
        assert "hold no numbers" in note(FusedQkv().to("meta"))

    def test_scripted(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scripted = torch.jit.script(nn.Linear(2, 2))
        assert "no operation has a line" in note(scripted)

    def test_ordinary_modules_are_not(self) -> None:
        assert unreadable(FusedQkv(), (features(), {"mask": None})) == ""
