"""`check(..., fuzz=N)`: faults that show only at some sizes, and the smallest sizes that show a fault."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.errors import UsageError
from tests.gotchas.twins import build
from tests.probe.modules import D, FusedQkv, H, Sdpa, seeded


class MergesByLength(nn.Module):
    """Forgets to move the heads back where there are as many positions as heads, as code that guesses by size does."""

    def __init__(self) -> None:
        super().__init__()
        self.in_proj = nn.Linear(D, 3 * D)
        self.out_proj = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = self.in_proj(x).view(batch, time, 3, H, -1).permute(2, 0, 3, 1, 4)
        context = (q @ k.mT / (D // H) ** 0.5).softmax(-1) @ v
        if time != H:
            context = context.transpose(1, 2)
        return self.out_proj(context.reshape(batch, time, width))


class Cross(nn.Module):
    """Scores scaled by the number of keys where the memory is as long as the input."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in (self.q(x), self.k(memory), self.v(memory)))
        scale = q.shape[-1] ** -0.5 if q.shape[2] != k.shape[2] else q.shape[-1] ** -1.0
        context = (q @ k.mT * scale).softmax(-1) @ v
        return self.out(context.transpose(1, 2).flatten(2))


def notes(report: attn_guard.Report) -> dict[str, list[str]]:
    return {finding.code: [note for note in finding.notes if "smallest" in note] for finding in report}


def test_a_fault_of_coinciding_sizes_is_found_with_its_smallest_sizes() -> None:
    module = seeded(MergesByLength)
    assert attn_guard.check(module).ok
    report = attn_guard.check(module, fuzz=60)
    assert notes(report) == {"ATN304": [f"the smallest sizes that show it: batch 1, time {H}"]}
    (found,) = report
    assert f"[1, {H}, {D}]" in found.reproduce


def test_a_fault_of_equal_lengths_of_input_and_memory() -> None:
    module = seeded(Cross)
    assert attn_guard.check(module, cross=True).ok
    report = attn_guard.check(module, cross=True, fuzz=60)
    assert notes(report) == {"ATN102": ["the smallest sizes that show it: batch 1, time 1, memory 1"]}


def test_given_inputs_are_resized_as_well() -> None:
    report = attn_guard.check(seeded(MergesByLength), (torch.randn(2, 5, D),), fuzz=60)
    assert notes(report) == {"ATN304": [f"the smallest sizes that show it: batch 1, time {H}"]}


def test_an_ordinary_fault_names_the_smallest_sizes_that_show_it() -> None:
    report = attn_guard.check(build("broken", "atn304_head_merge"), fuzz=20)
    assert notes(report) == {"ATN304": ["the smallest sizes that show it: batch 1, time 2"]}


@pytest.mark.parametrize("make", [FusedQkv, Sdpa])
def test_what_is_right_stays_right_at_every_size(make: type[nn.Module]) -> None:
    report = attn_guard.check(seeded(make), fuzz=40)
    assert report.ok, str(report)


class NeedsTwoSamples(FusedQkv):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.squeeze())


def test_sizes_at_which_the_module_raises_are_a_note() -> None:
    report = attn_guard.check(seeded(NeedsTwoSamples), fuzz=30)
    assert report.ok
    (note,) = report
    assert note.code == "ATN903"
    assert "not enough values to unpack" in note.notes[0]
    assert note.notes[1] == "the smallest sizes that show it: batch 1, time 1"


def test_a_seed_gives_the_same_again() -> None:
    module = seeded(MergesByLength)
    first, second = (attn_guard.check(module, fuzz=25, seed=3) for _ in range(2))
    assert str(first) == str(second)


def test_sizes_that_cannot_be_told_apart_are_said_so() -> None:
    report = attn_guard.check(seeded(FusedQkv), (torch.randn(3, 3, D),), fuzz=10)
    assert "sizes were not searched: batch and time of the call cannot be told apart" in report.assumptions


def test_without_hypothesis_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'attn-guard\[hypothesis\]'"):
        attn_guard.check(seeded(FusedQkv), fuzz=10)


def test_a_check_without_fuzz_does_not_load_hypothesis() -> None:
    program = (
        "import sys, attn_guard\nfrom attn_guard.reference import MultiHeadAttention\n"
        "attn_guard.check(MultiHeadAttention(8, 2))\nassert 'hypothesis' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
