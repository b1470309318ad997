"""What calling a layer (``self.q(x)``) does, for the layers of torch and those that are named like them."""

from __future__ import annotations

from dataclasses import replace

from attn_guard.lint import arithmetic, modes, ops, padded_inputs
from attn_guard.lint.arithmetic import as_tensor
from attn_guard.lint.place import Call
from attn_guard.lint.sdpa import multihead_attention, transformer_layer
from attn_guard.lint.values import UNKNOWN, Atom, Flag, Layer, Role, Scalar, Sequence, Tensor, Value

_TRANSFORMERS = frozenset(
    {"Transformer", "TransformerEncoder", "TransformerDecoder", "TransformerEncoderLayer", "TransformerDecoderLayer"}
)
_BATCH = Scalar(powers=((Atom("batch"), 1.0),))
_CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict"})


def call_layer(layer: Layer, call: Call) -> Value:
    """The value of ``layer(*args)`` of one layer; ``call.args`` does not hold the layer itself."""
    kind = layer.kind
    value = call.arg(0, "input", "x", "hidden_states")
    if kind == "MultiheadAttention":
        return multihead_attention(call, layer)
    if kind in _TRANSFORMERS:
        return transformer_layer(call, layer)
    if kind.endswith("Linear") or kind in ("Conv1D", "Dense"):
        return arithmetic.project(call.place, as_tensor(value), _width(layer))
    if "Norm" in kind:
        return ops.normalised(call, value)
    if "Softmax" in kind and "Log" not in kind:
        return ops.softmax(replace(call, args=(value, *_softmax_axis(layer)), kwargs={}))
    if "Dropout" in kind or "DropPath" in kind:
        modes.note_new_layer(layer, call, value)
        return ops.dropped(call, value)
    if kind in ("Conv1d", "Conv2d", "Conv3d"):
        return _convolved(value, layer)
    if kind in ("LSTM", "GRU", "RNN"):
        leads = (_BATCH, None, None) if layer.kwargs.get("batch_first") == Flag(True) else None
        return Sequence((Tensor(axes=leads), UNKNOWN))
    if kind == "Embedding":
        ids = as_tensor(value)
        width = _width(layer)
        axes = (*ids.axes, width) if ids and ids.axes else None
        return Tensor(
            axes=axes, last=width, pads=padded_inputs.looked_up(layer, call), timed=ids.timed if ids else None
        )
    if kind == "Identity":
        return value
    if kind == "Rearrange":
        return value.shaped(None, None) if isinstance(value, Tensor) else value
    return _opaque(call)


def _convolved(value: Value, layer: Layer) -> Tensor:
    """(batch, channels, ...): a convolution takes and gives no other order."""
    tensor = as_tensor(value)
    batch = tensor.axes[0] if tensor and tensor.axes else None
    places = (None,) * int(layer.kind[-2])
    return Tensor(axes=(batch or _BATCH, _width(layer), *places))


def _softmax_axis(layer: Layer) -> tuple[Value, ...]:
    """What ``nn.Softmax`` was given as `dim`; nothing is known of layers that are only called like it."""
    if layer.kind != "Softmax":
        return (UNKNOWN,)
    given = layer.kwargs.get("dim", layer.args[0] if layer.args else None)
    return () if given is None else (given,)


def _opaque(call: Call) -> Value:
    """A layer that is not understood: scores stay scores, but nothing is sure about them any more."""
    for value in (*call.args, *call.kwargs.values()):
        if isinstance(value, Tensor) and value.role in (Role.SCORES, Role.WEIGHTS):
            return replace(value, traced=False, opaque=True, axes=None, order=None, grid=None)
    return Tensor()


def _width(layer: Layer) -> Scalar | None:
    at = 0 if layer.kind == "Conv1D" else 1
    named = (layer.kwargs.get(name) for name in ("out_features", "out_channels", "embedding_dim"))
    width = next((value for value in named if value), layer.args[at] if len(layer.args) > at else None)
    return width if isinstance(width, Scalar) else None


def item_of(layer: Layer) -> Value:
    """One of the layers in a ``ModuleList``."""
    return layer.children[0] if layer.kind in _CONTAINERS and layer.children else UNKNOWN


def make_layer(kind: str, call: Call, *, plain: bool = False, path: str = "") -> Layer:
    args = call.args
    children: tuple[Value, ...] = ()
    if kind in _CONTAINERS:
        items = args[0].items if len(args) == 1 and isinstance(args[0], Sequence) else args
        children = tuple(items)
    return Layer(kind, args, call.kwargs, children, plain, call.place.region, path)
