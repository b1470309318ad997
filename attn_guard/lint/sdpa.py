"""``F.scaled_dot_product_attention`` and ``nn.MultiheadAttention``, and what True means in their masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from attn_guard.anatomy import StepKind
from attn_guard.lint import arithmetic, mask_sources, mask_use, modes, padded_inputs
from attn_guard.lint.attended_axes import along_first_axis, over_heads
from attn_guard.lint.fused_scores import attended, masked, scaled_scores
from attn_guard.lint.place import Call, is_absent
from attn_guard.lint.record import Event, Trouble
from attn_guard.lint.values import (
    AttentionMap,
    Flag,
    Kind,
    Layer,
    Mask,
    Meaning,
    Nothing,
    Sequence,
    Tensor,
    Value,
)


def scaled_dot_product_attention(call: Call) -> Value:
    query = arithmetic.as_tensor(call.arg(0, "query"))
    key = arithmetic.as_tensor(call.arg(1, "key"))
    value = arithmetic.as_tensor(call.arg(2, "value"))
    mask, scale = call.given(3, "attn_mask"), call.given(6, "scale")
    mask = arithmetic.as_mask(mask) or mask if mask is not None else None
    modes.note_rate(call, call.given(4, "dropout_p"), "weights")
    is_causal = call.given(5, "is_causal")
    if is_causal == Flag(True) and not is_absent(mask):
        call.place.record.note(Trouble.MASK_AND_IS_CAUSAL, Event(call.place.draft(StepKind.MASK)))
    if query is None or key is None:
        return Tensor()
    over_heads(call.place, query, (query.axes or ())[-2:-1], (key.axes or ())[-2:-1])
    scores = masked(call, scaled_scores(call, query, key, scale), mask, is_causal)
    if isinstance(mask, Mask) and mask.meaning is not Meaning.ADDED and mask.kind is not Kind.FLOAT:
        mask_use.keeps(call.place, mask, scores)
    elif isinstance(mask, Mask):
        mask_use.added(call.place, mask, scores)
    if is_causal == Flag(True):
        mask_use.starts_at_top_left(call.place, scores)
    if isinstance(mask, Mask) and mask.meaning is Meaning.BLOCKS and not (mask.flags and mask.kind is Kind.FLOAT):
        call.place.record.misread.append(
            Event(
                call.place.draft(StepKind.MASK),
                f"True means blocked in this {mask.name or 'mask'}, but attend in scaled_dot_product_attention",
                "invert the mask: attn_mask=~mask",
            )
        )
    return attended(call, scores, value, query)


def multihead_attention(call: Call, layer: Layer) -> Value:
    """A call of ``nn.MultiheadAttention``: (output, weights)."""
    mask_sources.check(call, "MultiheadAttention")
    given = {name: call.given(index, name) for name, index in (("key_padding_mask", 3), ("attn_mask", 5))}
    _read_masks(call, f"nn.{layer.kind}", given)
    query, key = (arithmetic.as_tensor(call.arg(index, name)) for index, name in ((0, "query"), (1, "key")))
    value = arithmetic.as_tensor(call.arg(2, "value"))
    if query is None or key is None:
        return Sequence((Tensor(),), endless=True)
    padded_inputs.check(call, layer, (key,), given)
    sources = (_projected(call, query), _projected(call, key))
    scores = arithmetic.score(call.place, *sources)
    scores = replace(scores, opaque=scores.opaque or call.spread, traced=False)
    for mask in given.values():
        scores = masked(call, scores, mask)
    attended(call, scores, _projected(call, value) if value else None, query)
    call.place.record.attended.append(call.place.draft(StepKind.CONTEXT))
    ran = along_first_axis(call, layer, query)
    return Sequence((Tensor(axes=query.axes, last=query.last, ran=ran), _map(call) if layer.plain else Tensor()))


def _map(call: Call) -> Value:
    """The weights that a call of ``nn.MultiheadAttention`` gives."""
    wanted, averaged = call.given(4, "need_weights"), call.given(6, "average_attn_weights")
    if wanted == Flag(False):
        return Nothing()
    if call.spread or wanted not in (None, Flag(True)):
        return Tensor()
    return AttentionMap(call.place.draft(StepKind.CONTEXT), averaged in (None, Flag(True)))


def _projected(call: Call, value: Tensor) -> Tensor:
    """An input of a layer that projects it."""
    return Tensor(steps=(call.place.draft(StepKind.PROJECTION, text=value.name),))


def transformer_layer(call: Call, layer: Layer) -> Value:
    """A call of ``nn.TransformerEncoder`` and its kin: its masks are read, and which axis it runs along."""
    mask_sources.check(call, layer.kind)
    positional = _POSITIONAL.get(layer.kind, ())
    given = {name: call.given(index, name) for index, name in enumerate(positional)}
    given |= {name: value for name, value in call.kwargs.items() if name.endswith("mask")}
    masks = {name: mask for name, mask in given.items() if name.endswith("mask")}
    _read_masks(call, f"nn.{layer.kind}", masks)
    inputs = [arithmetic.as_tensor(value) for name, value in given.items() if value is not None and name not in masks]
    padded_inputs.check(call, layer, inputs, masks)
    value = arithmetic.as_tensor(call.arg(0, "src", "tgt"))
    call.place.record.attended.append(call.place.draft(StepKind.CONTEXT))
    ran = along_first_axis(call, layer, value)
    return Tensor(axes=value.axes if value else None, ran=ran)


_DECODER = ("tgt", "memory", "tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask")
_POSITIONAL = {
    "TransformerEncoder": ("src", "mask", "src_key_padding_mask"),
    "TransformerEncoderLayer": ("src", "src_mask", "src_key_padding_mask"),
    "TransformerDecoder": _DECODER,
    "TransformerDecoderLayer": _DECODER,
    "Transformer": (
        *("src", "tgt", "src_mask", "tgt_mask", "memory_mask"),
        *("src_key_padding_mask", "tgt_key_padding_mask", "memory_key_padding_mask"),
    ),
}


def _read_masks(call: Call, layer: str, given: Mapping[str, Value | None]) -> None:
    for name, value in given.items():
        mask = arithmetic.as_mask(value) if value is not None else None
        if mask:
            mask_use.too_flat_for(call.place, name, mask)
        if mask and mask.tiled and name == "attn_mask":
            event = Event(
                mask.tiled, related=call.place.draft(StepKind.MASK), label="which numbers heads sample by sample"
            )
            call.place.record.note(Trouble.TILED, event)
        if isinstance(mask, Mask) and (mask.kind is Kind.FLOAT or mask.meaning is Meaning.ADDED):
            mask_use.added(call.place, mask)
        elif isinstance(mask, Mask):
            mask_use.blocks(call.place, mask)
        # a mask of padding that is handed over as one of queries and keys holds something else than its name says
        is_in_place = isinstance(mask, Mask) and (name.endswith("key_padding_mask") or not mask.padding)
        is_float = isinstance(mask, Mask) and mask.flags and mask.kind is Kind.FLOAT
        if isinstance(mask, Mask) and mask.meaning is Meaning.KEEPS and is_in_place and not is_float:
            call.place.record.misread.append(
                Event(
                    call.place.draft(StepKind.MASK),
                    f"True means attend in this {mask.name or 'mask'}, but ignored in {name} of {layer}",
                    f"invert the mask: {name}=~mask",
                )
            )
