"""Which entry of a value each number of another is made of: the same as changing one entry at a time shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attn_guard.probe.entries import entries_of
from attn_guard.probe.record import record
from attn_guard.probe.replay import Replay
from attn_guard.probe.tape import Tape

Way = Callable[[Tensor], Tensor]

FOLLOWED: dict[str, Way] = {
    "as it is": lambda x: x,
    "a mask of (batch, keys)": lambda x: x[:, None, None, :].expand(-1, 4, 5, -1),
    "heads merged into the batch": lambda x: x[:, None, None].expand(-1, 4, -1, -1).reshape(-1, 1, x.shape[1]),
    "added": lambda x: torch.zeros_like(x).masked_fill_(x > 0, -torch.inf)[:, None],
    "in both operands": lambda x: (inverted := 1 - x).masked_fill(inverted > 0, -1.0),
    "with another mask": lambda x: torch.where(torch.ones(7, 7).tril() > 0, x[:, None], 0.0),
    "cut and turned": lambda x: torch.split(x, 2, 0)[0].mT.unsqueeze(0) * 3,
    "by index": lambda x: x[torch.tensor([1, 0, 2])[:, None], torch.arange(x.shape[1])],
}
LEFT_OUT: dict[str, Way] = {
    "summed": lambda x: x.cumsum(1),
    "of two entries": lambda x: x[:, :, None] * x[:, None, :],
    "with itself moved": lambda x: x + x.flip(1),
    "normalised": lambda x: x.softmax(-1),
    "as other bits": lambda x: x.view(torch.int32),
    "looked up by itself": lambda x: torch.arange(9)[x.long().clamp(0, 8)],
    "not at all": lambda x: torch.ones_like(x),
}


def recorded(way: Way) -> tuple[Tape, int, int]:
    class Made(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return way(x)

    x = torch.arange(1.0, 22.0).view(3, 7)
    tape = record(Made(), (x,), {}, {id(x): "x"})
    assert tape.failure is None
    return tape, tape.inputs()["x"], tape.results()[0]


@pytest.mark.parametrize("way", FOLLOWED)
def test_a_number_changes_with_no_other_entry_than_its_own(way: str) -> None:
    tape, source, target = recorded(FOLLOWED[way])
    entries = entries_of(tape, source, target)
    assert entries is not None
    assert entries.shape == tape.values[target].shape
    replay, value = Replay(tape, [source], [target]), tape.values[source]
    changed = torch.zeros(entries.shape, dtype=torch.bool)
    for entry in range(value.numel()):
        other = value.clone()
        other.view(-1)[entry] *= -1
        differs = replay({source: other})[target] != tape.values[target]
        assert not (differs & (entries != entry)).any()
        changed |= differs
    assert changed.any()


@pytest.mark.parametrize("way", LEFT_OUT)
def test_what_is_made_of_several_entries_or_of_none_is_left_out(way: str) -> None:
    assert entries_of(*recorded(LEFT_OUT[way])) is None
