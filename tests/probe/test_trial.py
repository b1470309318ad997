"""A call that is tried without a recording: whether it runs, and that nothing is left of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from attn_guard.probe.calling import Call
from attn_guard.probe.trial import runs


@pytest.mark.parametrize(("length", "fits"), [(3, True), (4, False)])
def test_whether_a_call_runs(length: int, fits: bool) -> None:
    assert runs(nn.Linear(3, 5), Call((torch.randn(2, length),), {}, "as given")) is fits


def test_what_a_trial_writes_is_undone_even_where_it_fails() -> None:
    class Writes(nn.Module):
        seen: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(3))
            self.kept = torch.arange(6.0)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            self.seen += x[0]
            self.kept[2:].mul_(2)
            self.kept.view(2, 3)[0].zero_()
            mask.logical_not_()
            self.step = 1
            raise ValueError("after all")

    writing = Writes().train()
    x, mask = torch.randn(2, 3), torch.ones(2, 3, dtype=torch.bool)
    state = torch.get_rng_state()
    assert not runs(writing, Call((x, mask), {}, "as given"))
    assert torch.equal(writing.seen, torch.zeros(3))
    assert torch.equal(writing.kept, torch.arange(6.0))
    assert mask.all()
    assert writing.training
    assert not hasattr(writing, "step")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_tensor_that_is_written_and_loses_an_axis_in_place() -> None:
    class Squeezes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x.mul_(2).squeeze_(0)
            (x + 1).unsqueeze_(0).zero_()
            return x

    x = torch.ones(1, 3)
    assert runs(Squeezes(), Call((x,), {}, "as given"))
    assert torch.equal(x, torch.ones(1, 3))
