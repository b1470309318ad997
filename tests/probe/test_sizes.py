"""The sizes of a call, and the same call at others."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attn_guard.probe.calling import Call
from attn_guard.probe.sizes import CallSizes, resized, sizes_of

OLD = CallSizes(3, 5, 7)


def call(*args: object, batch_first: bool = True, **kwargs: object) -> Call:
    return Call(args, kwargs, "as given", batch_first)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (call(torch.randn(3, 5, 8)), CallSizes(3, 5)),
        (call(torch.randn(3, 5, 8), torch.randn(3, 7, 8)), CallSizes(3, 5, 7)),
        (call(torch.randn(5, 3, 8), batch_first=False), CallSizes(3, 5)),
        (call(torch.zeros(3, 5, dtype=torch.long)), CallSizes(3, 5)),
        (call(torch.zeros(3, 5, dtype=torch.bool), torch.randn(3, 7, 8)), CallSizes(3, 7)),
        (call(torch.randn(4, 4, 8)), None),
        (call(torch.randn(5, 8)), None),
        (call(x=None), None),
    ],
)
def test_sizes_are_read_off_the_inputs(given: Call, expected: CallSizes | None) -> None:
    assert sizes_of(given) == expected


def only(tensor: Tensor, new: CallSizes, old: CallSizes = OLD) -> Tensor:
    (found,) = resized(call(tensor), old, new).args
    assert isinstance(found, Tensor)
    return found


def test_a_cut_keeps_the_first_numbers() -> None:
    x = torch.randn(3, 5, 8)
    assert torch.equal(only(x, CallSizes(2, 4, 7)), x[:2, :4])


def test_a_longer_sequence_begins_with_the_given_one_and_repeats_nothing() -> None:
    x = torch.randn(3, 5, 8)
    longer = only(x, CallSizes(3, 9, 7))
    assert longer.shape == (3, 9, 8)
    assert torch.equal(longer[:, :5], x)
    assert not torch.equal(longer[:, 5:], x[:, :4])


def test_features_that_are_as_wide_as_a_sequence_is_long_stay() -> None:
    assert only(torch.randn(3, 5, 5), CallSizes(3, 2, 7)).shape == (3, 2, 5)


def test_square_masks_follow() -> None:
    assert only(torch.zeros(5, 5), CallSizes(3, 2, 7)).shape == (2, 2)
    assert only(torch.zeros(3, 1, 5, 7, dtype=torch.bool), CallSizes(2, 4, 6)).shape == (2, 1, 4, 6)


def test_infinite_masks_are_continued_with_what_they_hold() -> None:
    mask = torch.zeros(5, 5).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    assert set(only(mask, CallSizes(3, 8, 7)).flatten().tolist()) == {0.0, -torch.inf}


def test_positions_are_counted_on() -> None:
    assert only(torch.arange(5).expand(3, 5), CallSizes(2, 8, 7)).tolist() == [list(range(8))] * 2


def test_one_tensor_given_twice_stays_one() -> None:
    x = torch.randn(3, 5, 8)
    query, key = resized(call(x, x), OLD, CallSizes(1, 2, 7)).args
    assert query is key


def test_the_given_tensors_stay_as_they_are() -> None:
    x = torch.randn(3, 5, 8)
    before = x.clone()
    resized(call(x), OLD, CallSizes(3, 5, 7)).args[0].zero_()
    assert torch.equal(x, before)


def test_sizes_read_as_words() -> None:
    assert str(OLD) == "batch 3, time 5, memory 7"
    assert str(CallSizes(1, 2)) == "batch 1, time 2"
