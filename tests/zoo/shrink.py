"""Shrinks any configuration of `transformers` to a few small layers, by what its fields are called.

There is no list of models here. A field is an integer (or a list of them) that says how many layers, heads, columns,
words, pixels or experts there are; its name says which. Nested configurations are shrunk likewise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

LAYERS = 2
HEADS = 4
HEAD_DIM = 16
WIDTH = HEADS * HEAD_DIM
VOCABULARY = 101

# The first pattern that a name matches says what its number becomes; None leaves it as it is.
# Those of ``_WIDTHS`` are left out where widths are kept, for models whose layers differ in width.
Rules = tuple[tuple[str, int | None], ...]
_COUNTS: Rules = (
    (r"type_vocab_size|num_channels|in_channels|in_chans|audio_channels|input_size|num_labels|pretraining_tp", None),
    (r"codebook_size|^num_embeddings$|codebook_num", 64),
    (r"vocab|n_words", VOCABULARY),
    (r"(first_k_dense|dense_layers|num_hash|shared_layers)", 1),
    (r"(_|^)(frequency|interval|step|every)", None),
    (r"(layers?|n_layer|depth|num_blocks|num_hidden_groups|num_block_repeats|num_layers_.*)$", LAYERS),
    (r"(num_nextn_predict|mtp).*", 0),
    (r"experts_per_tok|num_experts_per_token|moe_topk|top_k|moe_k$", 2),
    (r"(n_group|topk_group|n_groups)$", 1),
    (r"shared_experts", None),
    (r"experts?$|moe_num_experts|num_local_experts", 4),
    (r"(sliding_window|local_attention|attention_window|window_length)", 8),
    (r"max_(source|target)_positions", 24),
    (r"^max_length$", 64),
    (r"max_text_length", 8),
    (r"context_length|max_context", 32),
    (r"num_queries|num_object_queries|num_query_tokens|num_latents|qformer_num|num_learnable_queries", 7),
    (r"index_topk", 4),
)
_WIDTHS: Rules = (
    (r"(key_value_heads|kv_heads|num_kv_heads|n_head_kv|multi_query_group_num|num_query_groups)$", 2),
    (r"linear_num_key_heads|linear_num_value_heads", HEADS),
    (r"mamba_(n|num)_heads", 2 * HEADS),
    (r"qk_head_dim|index_head_dim", 2 * HEAD_DIM),
    (r"(head_dim|head_size|d_kv|dim_head|kv_channels|attention_head_size|d_head|num_pos_feats)$", HEAD_DIM),
    (r"(^|_)(n|num|encoder|decoder|self|cross)?_?(attention_|attn_|self_attention_|cross_attention_)?heads?$", HEADS),
    (r"lora_rank|_rank$|lowrank", 24),
    (r"(intermediate|ffn|ff|mlp|inner|shared_expert)_?(size|dim|hidden_size)|d_ff|d_inner|n_inner|feedforward", 48),
    (r"(hidden|embed|embedding|model|d|emb|text|vision|output|latent)_?(size|dim|dims)(_global)?$", WIDTH),
    (r"(d_model|n_embd|hidden_dim|d_embed|dim_model|hidden_channels|d_latents)$|hidden_size$|embed_dim$", WIDTH),
    (r"projection_dim|proj_dim|fpn_hidden|decoder_dim|encoder_dim|_dim$", WIDTH),
)
# Fields that say of each layer which kind it is.
_KINDS = ("layer_types", "layers_block_type", "attention_layers", "hybrid_override_pattern")
_IMAGE = re.compile(r"image_size|pretrain_image_size|img_size|input_image_size")
_TOKEN = re.compile(r"_(token_id|token_index|id|index|token)$")


def shrink(config: Any, image: int = 64, *, widths: bool = True, sections: bool = False) -> None:
    """Shrinks a configuration in place.

    ``image`` is the side of the images it takes, ``widths`` whether layers become narrow as well as few, ``sections``
    whether rotary positions of three axes are given their share of the columns.
    """
    layers = _layers_of(config)
    kept = _kinds(config, layers)
    before = dict(vars(config))
    for name, value in before.items():
        if name.startswith("_") and name != "_out_indices":
            continue
        if hasattr(value, "to_dict"):
            shrink(value, image, widths=widths, sections=sections)
            continue
        small = _smaller(name, value, layers, kept, image, (*_COUNTS, *_WIDTHS) if widths else _COUNTS)
        if small is not value:
            _put(config, name, small)
    if widths:
        _keep_relations(config, before)
    if sections and isinstance(before.get("rope_parameters"), dict):
        _put(config, "rope_parameters", {**config.rope_parameters, "mrope_section": [2, 3, 3]})
    _fit_tokens(config)


def _keep_relations(config: Any, before: dict[str, Any]) -> None:
    """As many key heads as query heads stay as many; a head dimension that is the sum of two parts stays that; heads
    that make up the inner width of a state-space layer still do."""
    heads, kv_heads = before.get("num_attention_heads"), before.get("num_key_value_heads")
    if heads is not None and heads == kv_heads:
        _put(config, "num_key_value_heads", config.num_attention_heads)
    plain, rotary = before.get("qk_nope_head_dim"), before.get("qk_rope_head_dim")
    if isinstance(plain, int) and isinstance(rotary, int) and "head_dim" in before:
        whole = before["head_dim"] == plain + rotary
        _put(config, "head_dim", 2 * HEAD_DIM if whole else HEAD_DIM)
    expand, inner_heads = before.get("expand"), before.get("num_heads")
    if isinstance(expand, int) and inner_heads and "head_dim" in before:
        _put(config, "num_heads", expand * config.hidden_size // config.head_dim)
    if before.get("prediction_length", 0) is None:
        _put(config, "prediction_length", 4)
        _put(config, "context_length", 16)


def _put(config: Any, name: str, value: Any) -> None:
    try:
        setattr(config, name, value)
    except Exception:
        config.__dict__[name] = value


def _layers_of(config: Any) -> int:
    for name in ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "depth"):
        value = vars(config).get(name)
        if isinstance(value, int) and value > 1:
            return value
    return max((len(value) for name in _KINDS if isinstance(value := vars(config).get(name), list | tuple)), default=0)


def _kinds(config: Any, layers: int) -> list[int]:
    """The layers that are kept: the first of each kind that the configuration tells apart, and two at least."""
    for name in _KINDS:
        value = vars(config).get(name)
        if isinstance(value, list | tuple) and len(value) == layers and layers:
            first = sorted({str(kind): place for place, kind in reversed(list(enumerate(value)))}.values())
            return first if len(first) > 1 else list(range(min(LAYERS, layers)))
    return list(range(min(LAYERS, layers)))


def _smaller(name: str, value: Any, layers: int, kept: list[int], image: int, rules: Rules) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, list | tuple) and value:
        return _smaller_list(name, value, layers, kept, image)
    if isinstance(value, dict):
        return _smaller_rope(value) if "rope" in name else value
    if not isinstance(value, int):
        return value
    if _IMAGE.search(name):
        return min(value, image)
    if layers and value == layers and name.endswith(("layers", "n_layer", "depth")):
        return len(kept)
    for pattern, small in rules:
        if re.search(pattern, name):
            return value if small is None else min(value, small)
    return value


def _smaller_list(name: str, value: list[Any] | tuple[Any, ...], layers: int, kept: list[int], image: int) -> Any:
    kind = type(value)
    if _IMAGE.search(name) and all(isinstance(size, int) for size in value):
        return kind(min(size, image) for size in value)
    if name in ("depths", "blocks_per_stage", "stage_numb_of_layers", "layer_depths"):
        return kind(1 for _ in value)
    if layers and len(value) == layers and layers > 4:
        return kind(value[place] for place in kept)
    if re.search(r"(indexes|indices|global_attention_blocks|layer_ids)$", name) and layers:
        return kind(
            dict.fromkeys(min(max(place, -len(kept)), len(kept) - 1) for place in value if isinstance(place, int))
        )
    return value


def _smaller_rope(value: dict[str, Any]) -> dict[str, Any]:
    small = dict(value)
    for key, item in value.items():
        if key == "mrope_section" and isinstance(item, list):
            small[key] = [2, 3, 3] if len(item) == 3 else item
        elif isinstance(item, dict):
            small[key] = _smaller_rope(item)
    return small


def _fit_tokens(config: Any) -> None:
    """Ids of special tokens lie inside the vocabulary, each at its own place from the end."""
    place = VOCABULARY
    for name, value in list(vars(config).items()):
        if _TOKEN.search(name) and isinstance(value, int) and not isinstance(value, bool) and value >= VOCABULARY - 30:
            place -= 1
            _put(config, name, place)
        elif _TOKEN.search(name) and isinstance(value, list) and all(isinstance(item, int) for item in value):
            _put(config, name, [2 if item >= VOCABULARY - 30 else item for item in value])


def nested(config: Any) -> Iterator[Any]:
    """A configuration and those inside it, the outermost first."""
    yield config
    for name, value in vars(config).items():
        if not name.startswith("_") and hasattr(value, "to_dict"):
            yield from nested(value)
