"""Masks that built-in layers are given for one input, and that are built from another."""

from __future__ import annotations

from attn_guard.anatomy import StepKind
from attn_guard.lint import nodes as cst
from attn_guard.lint.place import Call
from attn_guard.lint.record import Event, Trouble
from attn_guard.lint.sources import families

_QUERIES_AND_KEYS = ("query", "key", "value", "key_padding_mask")
_DECODER = ("tgt", "memory", "tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask")
_TRANSFORMER = (
    *("src", "tgt", "src_mask", "tgt_mask", "memory_mask"),
    *("src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask"),
)

# layer: its arguments in order, and for each mask the argument that it speaks of and the other one
_LAYERS = {
    "MultiheadAttention": (_QUERIES_AND_KEYS, {"key_padding_mask": ("key", "query")}),
    "TransformerDecoderLayer": (
        _DECODER,
        {"tgt_key_padding_mask": ("tgt", "memory"), "memory_key_padding_mask": ("memory", "tgt")},
    ),
    "Transformer": (
        _TRANSFORMER,
        {
            "src_key_padding_mask": ("src", "tgt"),
            "tgt_key_padding_mask": ("tgt", "src"),
            "memory_key_padding_mask": ("src", "tgt"),
        },
    ),
}
_LAYERS["TransformerDecoder"] = _LAYERS["TransformerDecoderLayer"]


def check(call: Call, layer: str) -> None:
    """Notes a mask that knows nothing of the keys it hides, and all of it comes from where the queries come from."""
    names, masks = _LAYERS.get(layer, ((), {}))
    written, function = _written(call, names), call.place.region.tree
    for name, (own, other) in masks.items():
        if function is None or not {name, own, other} <= set(written):
            continue
        mask, keys, queries = (families(function, call.place.node, written[role]) for role in (name, own, other))
        if mask and keys and mask <= queries and not (mask | queries) & keys:
            text = f"{own} comes from {_listed(keys)}, its mask is built from {_listed(mask)}"
            call.place.record.note(Trouble.FOREIGN, Event(call.place.draft(StepKind.MASK), text))


def _written(call: Call, names: tuple[str, ...]) -> dict[str, cst.BaseExpression]:
    """The arguments of a call as they stand in the source."""
    if not isinstance(call.place.node, cst.Call) or call.spread:
        return {}
    args = call.place.node.args
    positional = [arg.value for arg in args if arg.keyword is None]
    return dict(zip(names, positional, strict=False)) | {arg.keyword.value: arg.value for arg in args if arg.keyword}


def _listed(names: frozenset[str]) -> str:
    return " and ".join(sorted(names))
