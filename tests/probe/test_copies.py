"""Copies of the inputs of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from attn_guard.probe.copies import NotCopiedError, copied


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Cache:
    keys: list[torch.Tensor]
    length: int = 0


class Output(dict[str, Any]):
    pass


def test_a_tensor_is_copied_with_its_values_and_strides() -> None:
    x = torch.randn(2, 3, requires_grad=True).transpose(0, 1)
    y = copied(x)
    assert y is not x
    assert torch.equal(y, x)
    assert y.stride() == x.stride()
    assert not y.requires_grad


def test_what_was_one_tensor_stays_one() -> None:
    x = torch.randn(2, 3)
    args, kwargs = copied(((x, x), {"value": x, "other": torch.randn(2)}))
    assert args[0] is args[1] is kwargs["value"]
    assert kwargs["other"] is not args[0]


def test_later_changes_in_place_do_not_reach_the_copy() -> None:
    cache = Cache([torch.zeros(2)], length=1)
    kept = copied({"cache": cache, "pair": Pair(cache.keys, (1, "x"))})
    cache.keys[0].add_(1)
    cache.keys.append(torch.ones(2))
    cache.length = 2
    assert kept["cache"].length == 1
    assert torch.equal(kept["cache"].keys[0], torch.zeros(2))
    assert len(kept["cache"].keys) == 1
    assert isinstance(kept["pair"], Pair)
    assert kept["pair"].first is kept["cache"].keys


def test_mappings_with_a_class_of_their_own_keep_it() -> None:
    out = Output(scores=torch.zeros(2))
    kept = copied(out)
    out["scores"].add_(1)
    assert type(kept) is Output
    assert torch.equal(kept["scores"], torch.zeros(2))


def test_modules_and_functions_are_shared() -> None:
    module = nn.Linear(2, 2)
    assert copied([module, torch.relu]) == [module, torch.relu]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (torch.empty(2, device="meta"), "an input is on the meta device"),
        (torch.ones(2).as_subclass(type("Named", (torch.Tensor,), {})), "an input is a Named"),
    ],
)
def test_tensors_without_plain_values_are_declined(value: torch.Tensor, reason: str) -> None:
    with pytest.raises(NotCopiedError, match=reason):
        copied((value,))
