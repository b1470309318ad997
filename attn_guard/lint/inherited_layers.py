"""The layers that a class of the file gets from the transformer layers of torch that it is derived from."""

from __future__ import annotations

from attn_guard.lint.attended_axes import BATCH_FIRST
from attn_guard.lint.place import Call
from attn_guard.lint.values import Flag, Instance, Layer

_ATTENTION = {
    "TransformerEncoderLayer": ("self_attn",),
    "TransformerDecoderLayer": ("self_attn", "multihead_attn"),
}
_PLAIN = {
    "Linear": ("linear1", "linear2"),
    "LayerNorm": ("norm1", "norm2", "norm3"),
    "Dropout": ("dropout", "dropout1", "dropout2", "dropout3"),
}
_STACKS = {"TransformerEncoder": "encoder_layer", "TransformerDecoder": "decoder_layer"}


def inherit(instance: Instance, base: str, made: Call) -> None:
    """Gives an object what the constructor of ``base``, a class of torch, makes of these arguments."""
    module, _, kind = base.rpartition(".")
    if not module.startswith("torch.nn"):
        return
    if kind in _STACKS and (layer := made.given(0, _STACKS[kind])):
        instance.attributes["layers"] = Layer("ModuleList", children=(layer,))
    if kind not in _ATTENTION:
        return
    said = made.given(BATCH_FIRST[kind], "batch_first")
    is_known = said is not None or not made.spread
    attention = Layer("MultiheadAttention", kwargs={"batch_first": said or Flag(False)}, plain=is_known)
    instance.attributes.update(dict.fromkeys(_ATTENTION[kind], attention))
    for plain, names in _PLAIN.items():
        instance.attributes.update(dict.fromkeys(names, Layer(plain)))
