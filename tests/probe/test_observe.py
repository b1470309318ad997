"""Which calls are noted, and which are left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attn_guard.probe.observe import PER_CLASS, Observer


class Net(nn.Module):
    def __init__(self, width: int = 4, scale: float = 1.0) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.scale = scale

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor | None = None) -> torch.Tensor:
        y: torch.Tensor = self.inner(x) * self.scale
        return y


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.zero_()


@pytest.fixture
def observer() -> Iterator[Observer]:
    observer = Observer()
    observer.install()
    yield observer
    observer.remove()


def names(observer: Observer) -> list[str]:
    return [seen.name for seen in observer.take()]


def test_only_calls_that_no_module_made_are_noted(observer: Observer) -> None:
    Net()(torch.randn(2, 4))
    assert names(observer) == ["Net"]


def test_positional_and_keyword_inputs_are_kept(observer: Observer) -> None:
    x = torch.randn(2, 4)
    Net()(x, mask=x)
    (seen,) = observer.take()
    assert torch.equal(seen.args[0], x)
    assert seen.kwargs["mask"] is seen.args[0]
    assert seen.args[0] is not x


def test_inputs_are_those_from_before_the_call(observer: Observer) -> None:
    InPlace()(torch.ones(2))
    (seen,) = observer.take()
    assert torch.equal(seen.args[0], torch.ones(2))


def test_each_configuration_is_noted_once(observer: Observer) -> None:
    for net in (Net(4), Net(4), Net(5), Net(4, scale=2.0)):
        net(torch.randn(2, net.inner.in_features))
        net(torch.randn(3, net.inner.in_features))
    assert names(observer) == ["Net", "Net", "Net"]
    assert names(observer) == []


def test_training_mode_makes_no_new_configuration(observer: Observer) -> None:
    Net()(torch.randn(2, 4))
    Net().eval()(torch.randn(2, 4))
    assert names(observer) == ["Net"]


def test_other_promises_make_it_count_again(observer: Observer) -> None:
    net = Net()
    net(torch.randn(2, 4))
    observer.install("causal")
    net(torch.randn(2, 4))
    assert names(observer) == ["Net", "Net"]


def test_a_class_with_endless_configurations_is_cut(observer: Observer) -> None:
    for width in range(1, PER_CLASS + 4):
        Net(width)(torch.randn(2, width))
    assert len(observer.take()) == PER_CLASS
    assert observer.take_notes() == [f"Net: only the first {PER_CLASS} configurations are probed"]


def test_a_call_that_raises_says_so_and_may_come_again(observer: Observer) -> None:
    net = Net()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            net(torch.randn(2, 5))
    net(torch.randn(2, 4))
    assert [seen.raised for seen in observer.take()] == [True, False]


def test_layers_of_torch_without_attention_are_passed_over(observer: Observer) -> None:
    nn.Sequential(nn.Linear(4, 4), nn.ReLU())(torch.randn(2, 4))
    nn.MSELoss()(torch.zeros(2), torch.zeros(2))
    nn.MultiheadAttention(4, 2)(*[torch.randn(3, 2, 4)] * 3)
    assert names(observer) == ["MultiheadAttention"]


def test_the_call_itself_is_unchanged(observer: Observer) -> None:
    torch.manual_seed(0)
    net, x = Net(), torch.randn(2, 4, requires_grad=True)
    state = torch.get_rng_state()
    observed = net(x)
    assert torch.equal(torch.get_rng_state(), state)
    observer.remove()
    assert torch.equal(net(x), observed)
    observed.sum().backward()
    assert x.grad is not None


def test_removing_leaves_no_trace() -> None:
    original = nn.Module.__call__
    observer = Observer()
    observer.install()
    observer.install()
    assert nn.Module.__call__ is not original
    observer.remove()
    observer.remove()
    assert nn.Module.__call__ is original


def vmapped(x: torch.Tensor) -> None:
    torch.func.vmap(Net())(x)


def on_meta(x: torch.Tensor) -> None:
    Net().to("meta")(x.to("meta"))


def counted(x: torch.Tensor) -> None:
    with FlopCounterMode(display=False):
        Net()(x)


@pytest.mark.parametrize("run", [vmapped, on_meta, counted])
def test_calls_without_plain_values_are_declined_with_a_note(
    observer: Observer, run: Callable[[torch.Tensor], None]
) -> None:
    run(torch.randn(2, 4))
    assert observer.take() == []
    (note,) = observer.take_notes()
    assert note.startswith("Net: not probed: ")


def test_symbolic_tracing_goes_on_as_before(observer: Observer) -> None:
    traced = torch.fx.symbolic_trace(Net())
    assert observer.take() == []
    assert next(node.op for node in traced.graph.nodes) == "placeholder"


def test_compiled_modules_are_left_to_the_compiler(observer: Observer) -> None:
    torch.compile(Net(), backend="eager", fullgraph=True)(torch.randn(2, 4))
    assert observer.take() == []
    assert observer.take_notes() == ["OptimizedModule: compiled modules are not probed"]


def test_modules_inside_compiled_functions_are_left_to_the_compiler(observer: Observer) -> None:
    net = Net()
    compiled = torch.compile(lambda x: net(x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2, 4)), net.forward(torch.ones(2, 4)) + 1)
    assert observer.take() == []
