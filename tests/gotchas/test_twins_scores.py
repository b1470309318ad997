"""The twins on scores and softmax are right and wrong as they claim, measured in plain torch without attn-guard."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.gotchas.twins import build

B, T = 2, 5


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def projected(module: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value (batch, heads, time, head_dim) of a twin with one fused projection."""
    heads, head_dim = module.heads, module.head_dim
    query, key, value = module.qkv(x).view(*x.shape[:2], 3, heads, head_dim).permute(2, 0, 3, 1, 4)
    return query, key, value


def output(module: Any, context: Tensor) -> Tensor:
    merged: Tensor = module.out(context.transpose(1, 2).flatten(2))
    return merged


def pair(name: str) -> tuple[Any, Any, Tensor]:
    """Both twins with the same parameters, and an input for them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        broken: Any = build("broken", name)
        fixed: Any = build("fixed", name)
    broken.load_state_dict(fixed.state_dict())
    x = torch.randn(B, T, fixed.out.in_features, generator=torch.Generator().manual_seed(0))
    return broken, fixed, x


@pytest.mark.parametrize(
    ("name", "causal"),
    [
        ("atn103_double_scale", False),
        ("atn104_softmax_axis", False),
        ("atn105_scale_after_softmax", False),
        ("atn106_softmax_count", True),
        ("atn107_weights_transposed", False),
        ("atn108_unsafe_softmax", False),
        ("atn223_mask_scaled", True),
    ],
)
def test_the_fixed_twin_is_the_attention_of_the_paper(name: str, causal: bool) -> None:
    _, fixed, x = pair(name)
    expected = output(fixed, F.scaled_dot_product_attention(*projected(fixed, x), is_causal=causal))
    torch.testing.assert_close(fixed(x), expected)


def test_double_scale_divides_the_scores_by_head_dim() -> None:
    broken, fixed, x = pair("atn103_double_scale")
    query, key, value = projected(fixed, x)
    scores = query @ key.mT / query.shape[-1]
    torch.testing.assert_close(broken(x), output(fixed, scores.softmax(-1) @ value))
    assert not torch.allclose(broken(x), fixed(x))


def test_over_queries_the_weights_of_a_query_do_not_sum_to_one() -> None:
    broken, fixed, x = pair("atn104_softmax_axis")
    query, key, value = projected(fixed, x)
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(-2)
    torch.testing.assert_close(broken(x), output(fixed, weights @ value))
    assert float((weights.sum(-1) - 1).abs().max()) > 0.05


def test_scaled_after_the_softmax_the_rows_sum_to_the_scale() -> None:
    broken, fixed, x = pair("atn105_scale_after_softmax")
    query, key, value = projected(fixed, x)
    weights = (query @ key.mT).softmax(-1) / math.sqrt(query.shape[-1])
    torch.testing.assert_close(broken(x), output(fixed, weights @ value))
    torch.testing.assert_close(weights.sum(-1), torch.full((B, 3, T), query.shape[-1] ** -0.5))


def test_a_second_softmax_lets_the_future_in() -> None:
    broken, fixed, x = pair("atn106_softmax_count")
    changed = x.clone()
    changed[:, -1] += 1.0
    assert torch.equal(fixed(x)[:, :-1], fixed(changed)[:, :-1])
    assert not torch.allclose(broken(x)[:, :-1], broken(changed)[:, :-1])


def test_transposed_weights_gather_what_others_give() -> None:
    broken, fixed, x = pair("atn107_weights_transposed")
    query, key, value = projected(fixed, x)
    weights = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(-1)
    torch.testing.assert_close(broken(x), output(fixed, weights.mT @ value))
    assert not torch.allclose(broken(x), fixed(x))


def test_exp_without_the_maximum_overflows() -> None:
    broken, fixed, x = pair("atn108_unsafe_softmax")
    torch.testing.assert_close(broken(x), fixed(x))
    assert broken(100 * x).isnan().any()
    assert fixed(100 * x).isfinite().all()


def test_a_mask_before_the_scale_is_shallower() -> None:
    broken, fixed, x = pair("atn223_mask_scaled")
    torch.testing.assert_close(broken(x), fixed(x))
    query, key, _ = projected(fixed, x)
    spread = float((query @ key.mT / math.sqrt(query.shape[-1])).std())
    large = x * math.sqrt(5e3 / spread)
    changed = large.clone()
    changed[:, -1] *= 1.5
    leaks = [bool((module(large)[:, :-1] != module(changed)[:, :-1]).any()) for module in (broken, fixed)]
    assert leaks == [True, False]


def test_linear_attention_without_its_normaliser_grows_with_the_sequence() -> None:
    broken, fixed, x = pair("atn109_linear_normaliser")
    query, key, value = projected(fixed, x)
    near = F.scaled_dot_product_attention(query, key, value, attn_mask=fixed.window(T))
    query, key = F.elu(query) + 1, F.elu(key) + 1
    weights = query @ key.mT
    torch.testing.assert_close(fixed(x), output(fixed, near + weights / weights.sum(-1, keepdim=True) @ value))
    torch.testing.assert_close(broken(x), output(fixed, near + weights @ value))
    assert float(weights.sum(-1).min()) > T
