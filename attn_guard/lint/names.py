"""What the names in attention code say: sizes, masks, padding ids, queries and keys.

A name alone never makes a finding. It decides what a size that the source computes with stands for, and whether an
unknown tensor may be a mask.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from attn_guard.anatomy import Size, Stage

_SIZES: tuple[tuple[Size, re.Pattern[str]], ...] = (
    (
        Size.HEADS,
        re.compile(
            r"(?:n|num|nb|number_of|n_of)?_?(?:attention|attn|self_attention|encoder_attention)?_?heads?|h|nhead"
        ),
    ),
    (
        Size.HEAD_DIM,
        re.compile(
            r"d_?k|d_?v|d_?q|d_?h|(?:attention_|attn_|qk_)?head_(?:dim|size|width|features|channels)|(?:qk_)?dim_(?:per_)?head"
            r"|(?:hidden_|attention_)?(?:size|dim|width|channels)_per_(?:attention_)?head|d_?head|hs|key_dim|dim_k|d_key|kv_channels"
        ),
    ),
    (
        Size.D_MODEL,
        re.compile(
            r"d_?model|dim_?model|(?:hidden|embed|embedding|emb|model)_?(?:dim|size|width|dims)|n_?emb(?:e?d)?|dim|d_?embed"
            r"|all_head_size|inner_dim|embed|width|hid_dim|n_state|embed_dims|dmodel"
        ),
    ),
)

_SOME_SIZE = re.compile(r"(?:\w+_)?(?:dim|dims|size|channels|features|width|units|heads|planes)")
_BATCH = re.compile(r"b|bs|bsz|bz|(?:n|num|mb|mini)?_?batch(?:_?size|es)?")
_PART = re.compile(
    r"(?:w|to|linear|lin|fc|proj|dense|project|map)?_?(q|query|queries|k|keys?|v|values?)s?"
    r"_?(?:w|proj|projection|linear|lin|layer|fc|net|dense|transform|map)?"
)
_MEMORY = re.compile(r"mem(?:ory)?|context|encoder_hidden_states|enc(?:oder)?_out(?:puts?)?")
_FEATURES = frozenset({"c", "d", "e", "dim", "channels", "features"})
_QUERY = re.compile(r"(?:.*_)?(?:q|qs|query|queries|query_states|query_layer|q_proj|xq)", re.IGNORECASE)
_KEY = re.compile(r"(?:.*_)?(?:k|ks|key|keys|key_states|key_layer|k_proj|xk)", re.IGNORECASE)
_VALUE = re.compile(r"(?:.*_)?(?:v|vs|value|values|value_states|value_layer|v_proj|xv)", re.IGNORECASE)
_CAUSAL = re.compile(r"(?<!non)(?<!not)(?<!non_)(?<!not_)(?<!\ba)causal", re.IGNORECASE)
_CAUSES = re.compile(
    r"causal_(?:rule|effect|graph|reason|inference|discovery|relation|structure)|counterfactual|confound|interven(?:e|tion)",
    re.IGNORECASE,
)
_PAD = re.compile(r"(?:^|_)pad(?:ding)?(?:_|$)|^pad|<pad>", re.IGNORECASE)
_MASK = re.compile(r"mask", re.IGNORECASE)
_HEAD_MASK = re.compile(r"head_?mask|mask_?heads?|drop", re.IGNORECASE)
_PADDING_MASK = re.compile(r"(?:.*_)?(?:padding_mask|pad_mask|key_mask|src_mask_pad|padding)")

_CACHE = re.compile(r"cache|past|prev|history", re.IGNORECASE)
_SIDES = {"src": "source", "source": "source", "trg": "target", "tgt": "target", "target": "target"}
_LENGTHS = re.compile(r"(?:(?!prefix|prompt|max)\w*_)?(?:lengths?|lens?|seq_?lens?|seq_?lengths?)", re.IGNORECASE)

_remembered = lru_cache(maxsize=10_000)  # code says the same few names over and over


@_remembered
def size_called(name: str) -> Size | None:
    """The size that a name stands for, where it can only be one."""
    lowered = name.lower().lstrip("_")
    return next((size for size, pattern in _SIZES if pattern.fullmatch(lowered)), None)


@_remembered
def is_size(name: str) -> bool:
    """Whether an argument of a constructor is a number of features, heads and the like, even if not which."""
    return size_called(name) is not None or _SOME_SIZE.fullmatch(name.lower()) is not None


def is_feature_axis(name: str) -> bool:
    """Whether the last of several names unpacked from a shape says that it is the width."""
    return name.lower() in _FEATURES or size_called(name) is Size.D_MODEL


@_remembered
def part_called(name: str) -> Stage | None:
    """The part of an attention that a projection is named after: ``w_q``, ``to_k``, ``value_proj``."""
    found = _PART.fullmatch(name.lower().strip("_"))
    return {"q": Stage.QUERY, "k": Stage.KEY, "v": Stage.VALUE}[found[1][0]] if found else None


def is_memory(name: str, beside: Sequence[str] = ()) -> bool:
    """Whether an argument is plainly what a cross attention asks."""
    return _MEMORY.fullmatch(name) is not None or (
        name in ("src", "source") and bool({"tgt", "trg", "target"} & {*beside})
    )


def are_height_and_width(given: Sequence[str]) -> bool:
    """Whether two sizes are those of an image."""
    return sorted(name.lower().strip("_") for name in given) in (["h", "w"], ["height", "width"])


def is_batch(name: str) -> bool:
    """Whether a size can only be the number of samples."""
    return _BATCH.fullmatch(name.lower()) is not None


def is_query_or_key(name: str) -> bool:
    return is_query(name) or is_key(name)


def is_operand(name: str) -> bool:
    """Whether a name stands for queries, keys or values."""
    return is_query_or_key(name) or is_value(name)


def is_value(name: str) -> bool:
    return _VALUE.fullmatch(name) is not None


@_remembered
def is_query(name: str) -> bool:
    return _QUERY.fullmatch(name) is not None


@_remembered
def is_key(name: str) -> bool:
    return _KEY.fullmatch(name) is not None


def is_activation(name: str) -> bool:
    """Whether a name stands for features, which are numbers with a fraction."""
    return is_query_or_key(name) or name in ("x", "hidden_states", "scores", "inputs_embeds")


def is_pad(name: str) -> bool:
    """Whether a name or string stands for the padding token."""
    return _PAD.search(name) is not None


@_remembered
def is_causal(name: str) -> bool:
    """Whether a name says causal: ``CausalAttention``, and not ``NonCausalAttention``."""
    return _CAUSAL.search(name) is not None


def speaks_of_causes(text: str) -> bool:
    """Whether "causal" is about cause and effect in a text, and not about time."""
    return _CAUSES.search(text) is not None


@_remembered
def is_mask(name: str) -> bool:
    """Whether a name stands for a mask over keys; a mask over heads is another thing."""
    return _MASK.search(name) is not None and _HEAD_MASK.search(name) is None


def is_padding_mask(name: str) -> bool:
    """Whether a name stands for a mask over padded keys. That of the targets is implied by a causal mask."""
    return _PADDING_MASK.fullmatch(name) is not None and not name.startswith(("tgt", "target", "query", "dec"))


def is_cache(name: str) -> bool:
    """Whether a name stands for the keys and values of earlier calls."""
    return _CACHE.search(name) is not None


def side(name: str) -> str:
    """Which of the two inputs of an encoder and a decoder a name speaks of, "" for neither."""
    first = name.lower().lstrip("_").partition("_")[0]
    return _SIDES.get(first, "")


def is_lengths(name: str) -> bool:
    """Whether a name stands for how much of each sample is no padding."""
    return _LENGTHS.fullmatch(name) is not None


def is_key_padding_mask(name: str) -> bool:
    """Whether a name is the one that torch has for a mask of shape (batch, keys)."""
    return name.endswith("key_padding_mask")


def is_rotation(name: str) -> bool:
    """Whether a name stands for the cosines or sines of rotary positions."""
    return re.search(r"(?:^|_)(?:cos|sin)(?:_|$)", name) is not None


@_remembered
def is_position_bias(name: str) -> bool:
    """Whether what is added to scores says how far apart query and key are."""
    return re.search(r"position|pos_?bias|relative|rel_|_rel|alibi", name) is not None


@_remembered
def is_dropout_rate(name: str) -> bool:
    """Whether an attribute of a module is called like a rate of dropout; that of whole paths is another thing."""
    return re.search(r"drop|^p$|_p$", name) is not None and "path" not in name
