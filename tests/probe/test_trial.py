"""A call that is tried without a recording: whether it runs, whether it reads an argument, and that nothing is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attn_guard.probe.calling import Call
from attn_guard.probe.trial import Trial, tried

Use = Callable[[Tensor, Tensor], Tensor]

USES: dict[str, tuple[Use, Trial]] = {
    "read": (lambda x, mask: x.masked_fill(mask, 0.0), Trial(ran=True, read=True)),
    "read after a move": (lambda x, mask: x * mask.t().t(), Trial(ran=True, read=True)),
    "only its shape": (lambda x, mask: x * mask.shape[0], Trial(ran=True, read=False)),
    "ignored": (lambda x, mask: x + 1, Trial(ran=True, read=False)),
    "does not fit": (lambda x, mask: x * mask[:, :1, None].expand(9, 9, 9), Trial(ran=False, read=True)),
}


def module(use: Use) -> nn.Module:
    class Uses(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return use(x, mask)

    return Uses()


@pytest.mark.parametrize("use", USES)
def test_what_becomes_of_an_argument(use: str) -> None:
    how, expected = USES[use]
    call = Call((torch.randn(2, 3), torch.ones(2, 3, dtype=torch.bool)), {}, "as given")
    assert tried(module(how), call, "mask") == expected


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
    assert not tried(writing, Call((x, mask), {}, "as given"), "mask").ran
    assert torch.equal(writing.seen, torch.zeros(3))
    assert torch.equal(writing.kept, torch.arange(6.0))
    assert mask.all()
    assert writing.training
    assert not hasattr(writing, "step")
    assert torch.equal(torch.get_rng_state(), state)
