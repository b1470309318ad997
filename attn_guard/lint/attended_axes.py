"""Which axis attention runs along, where the source shows that it is not that of the positions."""

from __future__ import annotations

from attn_guard.anatomy import StepKind
from attn_guard.lint import layout, names
from attn_guard.lint.place import Call, Place, is_absent
from attn_guard.lint.record import Event, Trouble
from attn_guard.lint.values import Axes, Draft, Flag, Layer, Scalar, Tensor, Value

# place of batch_first among the arguments of the constructor
BATCH_FIRST = {
    "MultiheadAttention": 8,
    "TransformerEncoderLayer": 6,
    "TransformerDecoderLayer": 6,
    "Transformer": 10,
}
_STACKS = {"TransformerEncoder": "encoder_layer", "TransformerDecoder": "decoder_layer"}


def over_heads(place: Place, query: Tensor, queries: Axes, keys: Axes, help: str = "") -> None:
    """Notes scores of heads with heads: the axes of queries and keys are those of the heads."""
    is_split = any(step.kind is StepKind.SPLIT for step in query.steps)
    if is_split and len(query.axes or ()) == 4 and queries == keys and queries and layout.is_heads(queries[0]):
        place.record.note(Trouble.OVER_HEADS, Event(place.draft(StepKind.SCORES), help=help))


def along_first_axis(call: Call, layer: Layer, value: Tensor | None) -> Draft | None:
    """The step of a built-in layer that runs along its first axis; notes where that is known to be the batch."""
    batch_first = _batch_first(layer)
    if batch_first is None or value is None or call.spread:
        return None
    step = call.place.draft(StepKind.SCORES)
    if batch_first:
        if value.timed and value.timed[0] == 0:
            event = Event(value.timed[1], related=step, label="this layer takes (batch, time, features)")
            call.place.record.note(Trouble.POSITIONS_ON_BATCH, event)
        return None
    if value.timed and value.timed[0] == 0:
        return None
    # a mask over (batch, time) fits only an input that is (time, batch, features)
    if any("key_padding_mask" in name and not is_absent(mask) for name, mask in call.kwargs.items()):
        return None
    if value.timed and value.timed[0] == 1:
        label = value.timed[1].text or "positions run along the second axis here"
        event = Event(step, related=value.timed[1], label=label)
        call.place.record.note(Trouble.OVER_BATCH, event)
    elif _leads_with_batch(value.axes):
        call.place.record.note(Trouble.OVER_BATCH, Event(step, f"the input is {text_of(value.axes or ())}"))
    return step


def pooled(place: Place, value: Value, axis: int | None) -> None:
    """Notes a pooling over the second axis of what ran along its first: then the second is time."""
    if isinstance(value, Tensor) and value.ran and axis == 1:
        event = Event(value.ran, related=place.draft(StepKind.MERGE), label="the second axis is taken for time here")
        place.record.note(Trouble.OVER_BATCH, event)


def text_of(axes: Axes) -> str:
    """Axes as they are written: (batch * frames, pixels, channels)."""
    return f"({', '.join(_text(axis) for axis in axes)})"


def _text(axis: Scalar | None) -> str:
    if axis is None or axis.number < 0:
        return "?" if axis is None else "-1"
    names_of = [atom.name if power == 1 else f"{atom.name}**{power:g}" for atom, power in axis.powers]
    number = [f"{axis.number:g}"] if axis.number != 1 or not names_of else []
    return " * ".join([*number, *names_of])


def _batch_first(layer: Layer) -> bool | None:
    """Whether a layer of torch takes (batch, time, features); None where that is not known."""
    if layer.kind in _STACKS:
        inner = layer.args[0] if layer.args else layer.kwargs.get(_STACKS[layer.kind])
        return _batch_first(inner) if isinstance(inner, Layer) and layer.plain else None
    if not layer.plain or layer.kind not in BATCH_FIRST:
        return None
    at = BATCH_FIRST[layer.kind]
    said = layer.kwargs.get("batch_first", layer.args[at] if len(layer.args) > at else Flag(False))
    return said.truth if isinstance(said, Flag) else None


def _leads_with_batch(axes: Axes | None) -> bool:
    if axes is None or len(axes) != 3:
        return False
    first, second = ([atom.name for atom, _ in axis.powers] if axis else [] for axis in axes[:2])
    is_single = axes[1] == Scalar(1.0)
    is_folded = any(name.endswith(layout.IN_FRONT) for name in first)
    return (is_folded or any(map(names.is_batch, first))) and not any(map(names.is_batch, second)) and not is_single
