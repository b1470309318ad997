"""Ids that hold padding, and built-in layers that are given what was looked up with them but no mask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attn_guard.anatomy import StepKind
from attn_guard.lint import nodes as cst
from attn_guard.lint.place import Call, is_absent
from attn_guard.lint.record import Event, Trouble
from attn_guard.lint.values import Draft, Layer, Scalar, Tensor, Unknown, Value

_PADDING_IDX = 2  # its place among the arguments of nn.Embedding


def looked_up(layer: Layer, call: Call) -> Draft | None:
    """The step of an embedding that says which id is padding; None where it says nothing."""
    given = layer.kwargs.get("padding_idx", layer.args[_PADDING_IDX] if len(layer.args) > _PADDING_IDX else None)
    is_known = isinstance(given, Scalar) or (
        isinstance(given, Unknown) and bool(given.name) and not _may_be_none(layer, given.name)
    )
    return call.place.draft(StepKind.PROJECTION) if layer.plain and is_known else None


def _may_be_none(layer: Layer, name: str) -> bool:
    """Whether an argument of the function that made the layer is None by default."""
    tree = layer.home.tree if layer.home else None
    params = (*tree.params.params, *tree.params.kwonly_params) if tree else ()
    defaults = [param.default for param in params if param.name.value == name]
    return any(isinstance(default, cst.Name) and default.value == "None" for default in defaults)


def check(call: Call, layer: Layer, inputs: Iterable[Tensor | None], masks: Mapping[str, Value | None]) -> None:
    """Notes a layer that sees padding in its input and is told of no mask at all."""
    told = [value for name, value in call.kwargs.items() if "mask" in name or name.endswith("is_causal")]
    if not layer.plain or call.spread or not all(map(is_absent, (*masks.values(), *told))):
        return
    source = next((value.pads for value in inputs if value and value.pads), None)
    if source is not None:
        event = Event(
            call.place.draft(StepKind.CONTEXT), related=source, label="padding_idx says that ids hold padding"
        )
        call.place.record.note(Trouble.PADS_SEEN, event)
