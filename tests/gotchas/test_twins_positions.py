"""The twins about positions and caches have their fault and lose it, measured with plain torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.gotchas.twins import build, namespace

BATCH, TIME = 3, 5


@pytest.fixture(autouse=True)
def _quiet_and_repeatable() -> Iterator[None]:
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.mark.parametrize("lengths", [(1, 1, 1, 1, 1), (2, 3), (3, 1, 1)])
@pytest.mark.parametrize("kind", ["broken", "fixed"])
def test_atn701_chunks_after_the_first_look_ahead(kind: str, lengths: tuple[int, ...]) -> None:
    module: Any = build(kind, "atn701_cache_mismatch")
    x = torch.randn(BATCH, TIME, 22)
    whole, _ = module(x)
    outputs, past = [], None
    for chunk in torch.split(x, list(lengths), dim=1):
        out, past = module(chunk, past)
        outputs.append(out)
    right = kind == "fixed" or lengths != (2, 3)
    assert torch.allclose(torch.cat(outputs, dim=1), whole, atol=1e-5) is right


@pytest.mark.parametrize(("kind", "blind"), [("broken", True), ("fixed", False)])
def test_atn702_the_order_of_the_tokens_does_not_matter(kind: str, blind: bool) -> None:
    module = build(kind, "atn702_rope_axis")
    x, order = torch.randn(BATCH, TIME, 42), torch.randperm(TIME)
    assert torch.allclose(module(x)[:, order], module(x[:, order]), atol=1e-6) is blind


def test_atn702_scores_of_one_distance_agree_in_the_right_layout_only() -> None:
    rotary = namespace("fixed", "atn702_rope_axis")["rotary"]
    same = torch.randn(14).expand(BATCH, 3, TIME, 14)
    for turned, relative in ((rotary(same), True), (rotary(same.transpose(1, 2)).transpose(1, 2), False)):
        scores = turned @ turned.mT
        assert torch.allclose(scores[..., 1:, 1:], scores[..., :-1, :-1], atol=1e-5)
        assert bool((scores[..., 0, 1:] - scores[..., 0, :1]).abs().max() > 0.1) is relative


@pytest.mark.parametrize(("kind", "blind"), [("broken", True), ("fixed", False)])
def test_atn703_another_order_of_the_tokens_is_another_order_of_the_outputs(kind: str, blind: bool) -> None:
    module = build(kind, "atn703_position_blind")
    x, order = torch.randn(BATCH, TIME, 21), torch.randperm(TIME)
    assert torch.allclose(module(x)[:, order], module(x[:, order]), atol=1e-6) is blind


@pytest.mark.parametrize(("kind", "moves"), [("broken", True), ("fixed", False)])
def test_atn704_the_tokens_after_padding(kind: str, moves: bool) -> None:
    module = build(kind, "atn704_left_pad_positions")
    ids = torch.randint(29, (BATCH, TIME))
    padded = torch.cat((torch.zeros(BATCH, 2, dtype=torch.long), ids), dim=1)
    mask = torch.ones_like(padded)
    mask[:, :2] = 0
    assert torch.allclose(module(ids, mask[:, 2:]), module(padded, mask)[:, 2:], atol=1e-5) is not moves


@pytest.mark.parametrize(("kind", "relative"), [("broken", False), ("fixed", True)])
def test_atn706_scores_of_one_distance(kind: str, relative: bool) -> None:
    rotary = namespace(kind, "atn706_rope_layout")["rotary"]
    query, key = rotary(torch.randn(14).expand(TIME, 14)), rotary(torch.randn(14).expand(TIME, 14))
    scores = query @ key.mT
    assert torch.allclose(scores[1:, 1:], scores[:-1, :-1], atol=1e-4) is relative


@pytest.mark.parametrize(("kind", "blind"), [("broken", True), ("fixed", False)])
def test_atn707_each_sample_has_a_vector_of_its_own(kind: str, blind: bool) -> None:
    module = build(kind, "atn707_position_axis")
    one, order = torch.randn(1, TIME, 22), torch.randperm(TIME)
    x = one.expand(BATCH, -1, -1)
    assert torch.allclose(module(x)[:, order], module(x[:, order]), atol=1e-6) is blind
    assert torch.allclose(module(x)[0], module(x)[1], atol=1e-6) is not blind


@pytest.mark.parametrize(("kind", "nearest"), [("broken", 0), ("fixed", 4)])
def test_atn705_the_key_with_the_most_weight(kind: str, nearest: int) -> None:
    module: Any = build(kind, "atn705_relative_bias_index")
    module.slopes.fill_(1.0)
    module.qkv.weight[:44], module.qkv.bias[:44] = 0.0, 0.0  # all products are 0: only the bias is left
    module.qkv.weight[44:], module.qkv.bias[44:] = torch.eye(22), 0.0
    module.out.weight.copy_(torch.eye(22))
    module.out.bias.zero_()
    x = torch.eye(TIME, 22)[None]
    assert module(x)[0, -1, :TIME].argmax() == nearest
