"""The twins about order in time have their faults, or have them no more, measured with plain torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.gotchas.twins import build, inputs

BATCH, TIME, WIDTH = 3, 5, 22
STAIRCASE = torch.ones(TIME, TIME).tril().bool()


@pytest.fixture(autouse=True)
def _quiet_and_repeatable() -> Iterator[None]:
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def influence(module: nn.Module, **kwargs: Any) -> torch.Tensor:
    """(time, time): whether the output at a row's position changes with the input at a column's, in any sample."""
    x = torch.randn(BATCH, TIME, WIDTH)
    before = module(x, **kwargs)
    columns = []
    for position in range(TIME):
        changed = x.clone()
        changed[:, position] = torch.randn(BATCH, WIDTH)
        columns.append((module(changed, **kwargs) != before).any(dim=-1).any(dim=0))
    return torch.stack(columns, dim=-1)


@pytest.mark.parametrize(("kind", "diagonal"), [("broken", 1), ("fixed", 0)])
def test_atn215_sees_up_to_a_diagonal(kind: str, diagonal: int) -> None:
    expected = torch.ones(TIME, TIME).tril(diagonal).bool()
    assert torch.equal(influence(build(kind, "atn215_causal_offset")), expected)


@pytest.mark.parametrize(("kind", "is_right"), [("broken", False), ("fixed", True)])
def test_atn216_a_chunk_after_a_cache_is_the_end_of_the_whole(kind: str, is_right: bool) -> None:
    module = build(kind, "atn216_causal_misaligned")
    x = torch.randn(BATCH, 12, WIDTH)
    whole, _ = module(x)
    _, past = module(x[:, :7])
    chunk, _ = module(x[:, 7:], past)
    assert torch.allclose(chunk, whole[:, 7:], atol=1e-5) is is_right


def test_atn216_the_given_call_has_a_cache() -> None:
    (x, past), _ = inputs("broken", "atn216_causal_misaligned")
    assert x.shape == (3, 5, 22)
    assert past[0].shape == (3, 2, 7, 11)


@pytest.mark.parametrize(("kind", "causal"), [("broken", True), ("fixed", False)])
def test_atn217_looks_both_ways_or_not(kind: str, causal: bool) -> None:
    seen = influence(build(kind, "atn217_causal_uncalled_for"))
    assert torch.equal(seen, STAIRCASE) if causal else bool(seen.all())


@pytest.mark.parametrize(("kind", "leaks"), [("broken", True), ("fixed", False)])
def test_atn405_the_norm_carries_the_future(kind: str, leaks: bool) -> None:
    seen = influence(build(kind, "atn405_leak_outside_attention"))
    assert bool(seen.all()) if leaks else torch.equal(seen, STAIRCASE)


class TestAtn802:
    nothing = torch.zeros(BATCH, TIME, dtype=torch.bool)

    def run(self, kind: str, backend: SDPBackend) -> torch.Tensor:
        with sdpa_kernel(backend):
            return influence(build(kind, "atn802_mask_and_is_causal"), key_padding_mask=self.nothing)

    def test_the_broken_one_depends_on_the_kernel(self) -> None:
        with pytest.raises(RuntimeError, match="is_causal"):
            self.run("broken", SDPBackend.MATH)
        assert torch.equal(self.run("broken", SDPBackend.FLASH_ATTENTION), STAIRCASE)

    @pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
    def test_the_fixed_one_does_not(self, backend: SDPBackend) -> None:
        assert torch.equal(self.run("fixed", backend), STAIRCASE)


@pytest.mark.parametrize(("kind", "seen"), [("broken", 5), ("fixed", 4)])
def test_atn218_the_last_position_sees_so_many(kind: str, seen: int) -> None:
    module, x = build(kind, "atn218_window_bounds"), torch.randn(1, 9, WIDTH)
    before = module(x)
    changed = []
    for position in range(9):
        other = x.clone()
        other[:, position] = 0.0
        changed.append(bool((module(other) != before)[:, -1].any()))
    assert changed == [False] * (9 - seen) + [True] * seen


@pytest.mark.parametrize(("kind", "leaks"), [("broken", True), ("fixed", False)])
def test_atn219_another_document(kind: str, leaks: bool) -> None:
    ids = torch.tensor([[1, 1, 2, 2, 2]]).expand(BATCH, -1)
    seen = influence(build(kind, "atn219_packing_leak"), document_ids=ids)
    assert bool(seen[2:, :2].any()) is leaks
    assert torch.equal(seen[2:, 2:], STAIRCASE[2:, 2:])


@pytest.mark.parametrize(("kind", "mixes"), [("broken", True), ("fixed", False)])
def test_atn404_a_batch_of_one_against_three(kind: str, mixes: bool) -> None:
    module, x = build(kind, "atn404_batch_mixing"), torch.randn(BATCH, TIME, WIDTH)
    other = x.clone()
    other[1:] = 0.0
    assert torch.equal(module(x)[0], module(other)[0]) is not mixes
