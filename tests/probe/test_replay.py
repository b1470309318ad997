"""Parts of a tape run again: bit for bit the recorded run, or a fresh run on other inputs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.probe.record import record, unfused
from attn_guard.probe.replay import Replay, ReplayError
from attn_guard.probe.tape import Tape
from tests.probe.modules import CAUSAL_STYLES, STYLES, FusedQkv, features, seeded
from tests.probe.silent_modules import CAUSAL, PreallocatedCache

ALL = {**STYLES, **{f"causal {name}": build for name, build in CAUSAL_STYLES.items()}}
ALL |= {getattr(build, "__name__", ""): build for build in CAUSAL}


def taped(module: nn.Module, x: Tensor) -> tuple[Tape, int, int]:
    """The tape of ``module(x)``, the value of x and that of the result."""
    tape = record(module, (x,), {}, {id(x): "x"})
    assert tape.failure is None
    return tape, tape.inputs()["x"], tape.results()[0]


class Body(nn.Module):
    def __init__(self, body: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


@pytest.mark.parametrize("style", ALL)
def test_the_recorded_input_gives_the_recorded_result(style: str) -> None:
    x = features()
    tape, source, result = taped(seeded(ALL[style]), x)
    assert torch.equal(Replay(tape, [source], [result])({source: x})[result], tape.values[result])


@pytest.mark.parametrize("style", [style for style in ALL if style != "TopKScores"])  # its choice stays
def test_another_input_gives_what_a_fresh_run_gives(style: str) -> None:
    module = seeded(ALL[style])
    tape, source, result = taped(module, features(seed=1))
    other = features(seed=2)
    again = Replay(tape, [source], [result])({source: other})[result]
    if hasattr(module, "past"):
        module.past = None  # type: ignore[assignment]
    with torch.no_grad(), unfused():
        assert torch.allclose(again, module(other), atol=1e-6)
    assert not torch.equal(again, tape.values[result])


def test_the_tape_stays_as_it_was() -> None:
    tape, source, result = taped(seeded(PreallocatedCache), features())
    before = [value.clone() for value in tape.values]
    Replay(tape, [source], [result])({source: features(seed=3)})
    assert all(torch.equal(left, right) for left, right in zip(before, tape.values, strict=True))


def test_values_in_the_middle_can_be_changed_and_asked_for() -> None:
    tape, _, result = taped(Body(lambda x: ((x + 1) * 2).exp()), torch.zeros(2))
    total, double = (op.output for op in tape.ops[:2])
    found = Replay(tape, [total], [double, result])({total: torch.full((2,), 3.0)})
    assert found[double].tolist() == [6, 6]
    assert torch.equal(found[result], torch.full((2,), 6.0).exp())


def test_what_does_not_depend_on_a_source_keeps_its_recording() -> None:
    runs = []

    def body(x: Tensor) -> Tensor:
        runs.append(1)
        return x + torch.ones(2).mul(5)

    tape, source, result = taped(Body(body), torch.zeros(2))
    constant = next(op for op in tape.ops if op.name == "mul").output
    found = Replay(tape, [source], [constant, result])({source: torch.ones(2)})
    assert found[constant] is tape.values[constant]
    assert found[result].tolist() == [6, 6]
    assert len(runs) == 1


def test_dropout_keeps_its_draw() -> None:
    module = seeded(FusedQkv, dropout=0.5).train()
    tape, source, result = taped(module, features())
    replay = Replay(tape, [source], [result])
    assert torch.equal(replay({source: features()})[result], tape.values[result])
    other = features(seed=4)
    assert torch.equal(replay({source: other})[result], replay({source: other})[result])


@pytest.mark.parametrize("draw", [F.dropout, F.alpha_dropout, lambda x: x + torch.randn_like(x)])
def test_random_operations_keep_their_draw(draw: Callable[[Tensor], Tensor]) -> None:
    tape, source, result = taped(Body(lambda x: draw(x) * 2), torch.ones(40))
    again = Replay(tape, [source], [result])({source: torch.ones(40)})[result]
    assert torch.equal(again, tape.values[result])


def test_a_view_that_only_the_recorded_memory_allowed() -> None:
    tape, source, result = taped(Body(lambda x: x.view(-1) * 2), torch.arange(6.0).view(2, 3))
    turned = torch.arange(6.0).view(3, 2).mT
    assert Replay(tape, [source], [result])({source: turned})[result].tolist() == (turned.reshape(-1) * 2).tolist()


def test_a_shape_that_does_not_fit_is_a_replay_error() -> None:
    tape, source, result = taped(seeded(FusedQkv), features(time=5))
    with pytest.raises(ReplayError, match=r"^\w+: ") as raised:
        Replay(tape, [source], [result])({source: features(time=7)})
    assert raised.value.__cause__ is not None


def test_no_gradients_and_no_random_numbers_are_used() -> None:
    tape, source, result = taped(seeded(FusedQkv, dropout=0.5).train(), features())
    before = torch.get_rng_state()
    found = Replay(tape, [source], [result])({source: features().requires_grad_()})
    assert not found[result].requires_grad
    assert torch.equal(torch.get_rng_state(), before)


class Routed(nn.Module):
    """Positions sorted by the expert that they choose; Python reads how many each expert gets."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = FusedQkv(causal=True)
        self.router = nn.Linear(21, 3, bias=False)
        self.experts = nn.ModuleList(nn.Linear(21, 21) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.attention(x).flatten(0, 1)
        strength, chosen = self.router(rows).topk(1, dim=-1)
        order = chosen.flatten().argsort()
        sizes = [int(size) for size in torch.bincount(chosen.flatten(), minlength=3)]
        parts = rows[order].split(sizes)
        worked = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        back = torch.empty_like(worked).index_copy(0, order, worked)
        return (back * strength.sigmoid()).view_as(x)


class TestChoices:
    def test_a_choice_stays_and_what_stands_there_changes(self) -> None:
        x, other = torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[10.0, 20.0, 30.0]])
        for choose in (lambda x: x.topk(2), lambda x: x.sort(stable=True), lambda x: x.sort(1, True)):
            tape, source, _ = taped(Body(choose), x)
            values, places = tape.results()
            again = Replay(tape, [source], [values, places])({source: other})
            assert torch.equal(again[places], tape.values[places])
            assert torch.equal(again[values], other.gather(1, tape.values[places]))

    def test_the_place_of_the_largest(self) -> None:
        tape, source, place = taped(Body(lambda x: x.argmax(-1)), torch.tensor([[3.0, 1.0]]))
        again = Replay(tape, [source], [place])({source: torch.tensor([[1.0, 3.0]])})
        assert again[place].tolist() == [0]

    def test_experts_do_not_look_like_a_leak(self) -> None:
        report = attn_guard.check(seeded(Routed), causal=True)
        assert list(report) == [], str(report)

    def test_the_largest_is_a_choice_where_its_place_is_read(self) -> None:
        x, other = torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([[10.0, 20.0, 30.0]])
        tape, source, _ = taped(Body(lambda x: tuple(x.max(1))), x)  # type: ignore[arg-type, return-value]
        values, places = tape.results()
        again = Replay(tape, [source], [values, places])({source: other})
        assert (again[values].tolist(), again[places].tolist()) == ([10.0], [0])
        tape, source, value = taped(Body(lambda x: x.min(1, keepdim=True).values), x)
        assert Replay(tape, [source], [value])({source: other})[value].tolist() == [[10.0]]
        tape, source, value = taped(Body(lambda x: x.max(1).values), x)
        assert Replay(tape, [source], [value])({source: other})[value].tolist() == [30.0]
        tape, source, value = taped(Body(lambda x: x.max()), x)
        assert float(Replay(tape, [source], [value])({source: other})[value]) == 30.0
