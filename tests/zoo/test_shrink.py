"""Configurations become small, and what belongs together in them stays together."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("transformers")

from tests.zoo.models import configuration
from tests.zoo.shrink import HEAD_DIM, HEADS, LAYERS, VOCABULARY, WIDTH, nested


def test_layers_heads_and_widths() -> None:
    config = configuration("llama")
    assert (config.num_hidden_layers, config.num_attention_heads) == (LAYERS, HEADS)
    assert (config.hidden_size, config.vocab_size) == (WIDTH, VOCABULARY)
    assert config.hidden_size == HEADS * HEAD_DIM


def test_as_many_key_heads_as_query_heads_stay_as_many() -> None:
    assert configuration("llama").num_key_value_heads == HEADS
    assert configuration("mistral").num_key_value_heads == HEADS // 2


def test_heads_make_up_the_inner_width_of_a_state_space_layer() -> None:
    config = configuration("mamba2")
    assert config.num_heads * config.head_dim == config.expand * config.hidden_size == 2 * WIDTH


def test_a_layer_of_each_kind_is_kept() -> None:
    config = configuration("gemma3_text")
    assert set(config.layer_types) == {"sliding_attention", "full_attention"}
    assert config.num_hidden_layers == len(config.layer_types)


def test_configurations_inside() -> None:
    config = configuration("clip", image=32)
    assert len(list(nested(config))) == 3
    assert config.vision_config.image_size == 32
    assert config.text_config.hidden_size == WIDTH


@pytest.mark.parametrize("kind", ["llama", "bart", "qwen2_vl"])
def test_special_tokens_lie_in_the_vocabulary(kind: str) -> None:
    for part in nested(configuration(kind)):
        tokens: dict[str, Any] = {name: value for name, value in vars(part).items() if name.endswith("_token_id")}
        assert all(value is None or value < VOCABULARY for value in tokens.values() if not isinstance(value, list))


def test_widths_are_kept_on_request() -> None:
    assert configuration("llama", widths=False).hidden_size == 4096


def test_layers_that_only_their_list_of_kinds_counts() -> None:
    config = configuration("nemotron_h")
    assert len(config.layers_block_type) == len(set(config.layers_block_type))
