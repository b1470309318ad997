"""The twins about wiring, dropout and returned weights have their fault, or not, in plain torch without attn-guard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.gotchas.twins import build


@pytest.fixture(autouse=True)
def _quiet_and_repeatable() -> Iterator[None]:
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def influence_in_training(name: str, kind: str, width: int) -> Tensor:
    """(time, time): whether the output at a row changes with the input at a column, under the same draw of dropout."""
    module = build(kind, name).train()
    x = torch.randn(1, 5, width)

    def run(value: Tensor) -> Tensor:
        torch.manual_seed(3)
        output: Tensor = module(value)
        return output

    before, columns = run(x), []
    for position in range(5):
        changed = x.clone()
        changed[:, position] = torch.randn(width)
        columns.append((run(changed) != before).any(dim=-1)[0])
    return torch.stack(columns, dim=-1)


@pytest.mark.parametrize(("kind", "equal"), [("broken", False), ("fixed", True)])
def test_dropout_in_eval(kind: str, equal: bool) -> None:
    module, x = build(kind, "atn501_dropout_in_eval"), torch.randn(3, 11, 26)
    assert not module.training
    assert torch.equal(module(x), module(x)) is equal
    assert not torch.equal(module.train()(x), module(x))


@pytest.mark.parametrize(("kind", "leaks"), [("broken", True), ("fixed", False)])
def test_dropout_before_softmax_opens_the_future(kind: str, leaks: bool) -> None:
    assert bool(influence_in_training("atn502_dropout_before_softmax", kind, 22).triu(1).any()) is leaks
    module, x = build(kind, "atn502_dropout_before_softmax"), torch.randn(1, 5, 22)
    assert torch.equal(module(x)[:, :2], module(torch.cat((x[:, :2], x[:, 3:]), dim=1))[:, :2])
