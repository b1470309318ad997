"""Whatever the probe does, the module and the process are afterwards as they were."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.probe.hygiene import device_and_dtype, one_thread, preserved
from tests.probe.modules import D, FusedQkv, features, seeded
from tests.probe.silent_modules import Core


class Untidy(nn.Module):
    """Changes everything that it can reach, and raises half-way where it is told to."""

    calls: Tensor

    def __init__(self, raises: bool = False) -> None:
        super().__init__()
        self.attention = FusedQkv(dropout=0.3)
        self.frozen = nn.Linear(D, D)
        self.frozen.requires_grad_(False)
        self.norm = nn.BatchNorm1d(D)
        self.register_buffer("calls", torch.zeros(3))
        self.raises = raises
        self.history: list[int] = []
        self.cached: Tensor | None = None
        self.caches: dict[str, Any] = {"layers": [{}, {}]}
        self.seen = {0}
        self.recent: deque[Any] = deque([1, 2], maxlen=2)
        self.frozen.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.calls = self.calls * 2
        self.register_buffer("extra", torch.ones(1))
        self.late = nn.Linear(2, 2)
        self.cached = x
        self.history.append(len(self.history))
        self.caches["layers"][0]["keys"] = x
        self.caches["seen"] = True
        self.seen.add(1)
        self.recent.append(x)
        self.new_attribute = "set in forward"
        self.attention.in_proj.weight.data.mul_(0.5)
        self.attention.train()
        self.frozen.register_forward_hook(lambda *_: None)
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(99)
        random.random()
        np.random.rand()
        torch.rand(3)
        if self.raises:
            raise RuntimeError("half-way")
        x = self.norm(x.mT).mT
        attended: Tensor = self.frozen(self.attention(x))
        return attended


def state(module: nn.Module) -> dict[str, Any]:
    hooks = torch.nn.modules.module
    cuda: Any = torch.backends.cuda
    parameters = dict(module.named_parameters())
    return {
        "parameters": {name: value.tolist() for name, value in parameters.items()},
        "identity": {name: id(value) for name, value in parameters.items()},
        "buffers": {name: value.tolist() for name, value in module.named_buffers()},
        "requires_grad": {name: value.requires_grad for name, value in parameters.items()},
        "grad": {name: value.grad for name, value in parameters.items()},
        "modules": [name for name, _ in module.named_modules()],
        "training": {name: child.training for name, child in module.named_modules()},
        "attributes": {name: sorted(vars(child)) for name, child in module.named_modules()},
        "plain": {name: value for name, value in vars(module).items() if isinstance(value, str | int | type(None))},
        "collections": [str(vars(module).get(name)) for name in ("history", "caches", "seen", "recent")],
        "hooks": [len(child._forward_hooks) + len(child._forward_pre_hooks) for child in module.modules()],
        "global hooks": (len(hooks._global_forward_hooks), len(hooks._global_forward_pre_hooks)),
        "torch": torch.get_rng_state().tolist(),
        "numpy": [part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()],
        "random": random.getstate(),
        "grad mode": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "sdpa": (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    before = state(module)
    try:
        yield
    finally:
        after = state(module)
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        for part, value in before.items():
            assert after[part] == value, part


def check(module: nn.Module) -> object:
    return attn_guard.check(module)


def check_given(module: nn.Module) -> object:
    return attn_guard.check(module, features(), causal=True, masks={"x": "ignore"})


def xray(module: nn.Module) -> object:
    return str(attn_guard.xray(module, features()))


WAYS = [check, check_given, xray]


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("probe", WAYS)
def test_an_untidy_module(probe: Callable[[nn.Module], object], training: bool, raises: bool) -> None:
    module = seeded(Untidy, raises).train(training)
    module.get_submodule("frozen").eval()
    with unchanged(module), suppress(RuntimeError):
        probe(module)


@pytest.mark.parametrize("grad", [False, True])
def test_the_gradient_mode_of_the_caller(grad: bool) -> None:
    module = seeded(Core)
    with torch.set_grad_enabled(grad), unchanged(module):
        attn_guard.check(module, causal=True)


def test_gradients_that_wait_for_the_optimiser() -> None:
    module = seeded(FusedQkv)
    module(features()).sum().backward()
    with unchanged(module):
        attn_guard.check(module)


def test_under_inference_mode() -> None:
    module = seeded(Core)
    with torch.inference_mode():
        assert attn_guard.check(module, causal=True).ok


def test_hooks_of_the_user_run_and_stay() -> None:
    module, calls = seeded(FusedQkv), []
    module.get_submodule("out_proj").register_forward_hook(lambda *_: calls.append(1))
    with unchanged(module):
        attn_guard.check(module, features())
    assert calls


def test_arguments_of_the_caller() -> None:
    class Writing(Core):
        def forward(self, x: Tensor) -> Tensor:
            x.mul_(2)
            return super().forward(x)

    x = features()
    attn_guard.check(seeded(Writing), x)
    assert torch.equal(x, features())


def test_arguments_keep_their_gradient_flag_and_are_not_in_a_graph() -> None:
    x = features().requires_grad_()
    seen = attn_guard.xray(seeded(FusedQkv), x)
    assert x.requires_grad
    assert x.grad is None
    assert all(value.is_leaf for value in seen.tape.values)


@pytest.mark.parametrize("way", ["guard", "check"])
def test_the_next_random_number_is_the_same(way: str) -> None:
    module = seeded(FusedQkv, dropout=0.2)

    def draws(probed: bool) -> list[float]:
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)
        if probed and way == "guard":
            attn_guard.guard(module)(features())
        elif probed:
            attn_guard.check(module)
        return [torch.rand(1).item(), random.random(), float(np.random.rand())]

    assert draws(True) == draws(False)


class TestPreserved:
    def test_evaluation_mode_and_seed_inside(self) -> None:
        module = seeded(FusedQkv).train()
        drawn = []
        for _ in range(2):
            with preserved(module, seed=4):
                assert not any(child.training for child in module.modules())
                assert not torch.is_grad_enabled()
                drawn.append(torch.rand(1).item())
        assert drawn[0] == drawn[1]
        assert all(child.training for child in module.modules())

    def test_after_an_exception(self) -> None:
        module = seeded(FusedQkv).train()

        def spoil() -> None:
            module.new = 1  # type: ignore[assignment]
            del module.out_proj
            raise KeyError

        with unchanged(module), pytest.raises(KeyError), preserved(module):
            spoil()

    def test_replaced_parameters_come_back(self) -> None:
        module = nn.Linear(2, 2)
        weight = module.weight
        with preserved(module):
            module.weight = nn.Parameter(torch.zeros(2, 2))
            module.register_parameter("bias", None)
        assert module.weight is weight
        assert module.bias is not None


def test_one_thread_inside() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1

    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError), one_thread():
        fail()
    assert torch.get_num_threads() == before


class TestDeviceAndDtype:
    def test_of_the_first_floating_tensor(self) -> None:
        module = nn.Linear(2, 2).to(torch.bfloat16)
        assert device_and_dtype(module) == (torch.device("cpu"), torch.bfloat16)

    def test_of_a_module_without_parameters(self) -> None:
        assert device_and_dtype(nn.Identity()) == (torch.device("cpu"), torch.float32)

    def test_integers_do_not_count(self) -> None:
        module = nn.Identity()
        module.register_buffer("steps", torch.zeros(2, dtype=torch.long))
        assert device_and_dtype(module)[1] is torch.float32
