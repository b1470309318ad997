"""Caches of transformers, and caches of others that only go by their name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch.nn.functional as F
from torch import Tensor

import attn_guard
from tests.probe.cached_modules import Pair, Parts, TupleCache, turned
from tests.probe.cached_modules import seen as visible
from tests.probe.modules import seeded

transformers = pytest.importorskip("transformers")
Cache = Pair
if TYPE_CHECKING:
    Foreign = Any
else:
    Foreign = transformers.Cache  # read by its name, since annotations are strings in this file


class NamedAlike(TupleCache):
    """A cache of tuples under the name of the class of transformers."""

    def forward(self, x: Tensor, past_key_values: Cache | None = None, use_cache: bool = False) -> Any:
        return super().forward(x, past_key_values, use_cache)


class OfTransformers(Parts):
    """A cache that takes the new keys and values, and gives all that it has."""

    def forward(self, x: Tensor, past_key_values: Foreign | None = None) -> Tensor:
        q, k, v = self.heads(x)
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        start = 0 if self.fault == "restarts" else past
        q, k = turned(q, start), turned(k, start)
        if past_key_values is not None:
            k, v = past_key_values.update(k, v, 0)
        return self.merged(F.scaled_dot_product_attention(q, k, v, attn_mask=visible(q.shape[2], k.shape[2])))


@pytest.mark.parametrize("declared", [None, "past_key_values"])
@pytest.mark.parametrize("kind", [NamedAlike, OfTransformers])
def test_right_cache_is_filled_as_it_asks_for(kind: type[Parts], declared: str | None) -> None:
    report = attn_guard.check(seeded(kind), causal=True, cache=declared)
    assert list(report) == [], str(report)


@pytest.mark.parametrize("kind", [NamedAlike, OfTransformers])
def test_positions_that_start_again_are_found(kind: type[Parts]) -> None:
    (found,) = attn_guard.check(seeded(kind, "restarts"), causal=True, cache="past_key_values")
    assert found.code == "ATN702"
