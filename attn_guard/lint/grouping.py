"""In which order the heads of queries and keys of grouped-query attention lie."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attn_guard.anatomy import StepKind
from attn_guard.lint.place import Call, Place
from attn_guard.lint.record import HeadOrder
from attn_guard.lint.values import Axes, Draft, Layer, Scalar, Tensor, Unknown

_FEWER = re.compile(r"kv|key_value", re.IGNORECASE)


def viewed(place: Place, value: Tensor, target: Axes) -> None:
    """Notes a view that cuts an axis of heads in two: (…, kv_heads, groups, head_dim)."""
    if len(target) == 5 and any(step.kind is StepKind.PROJECTION for step in value.steps):
        for outer, inner in ((target[2], target[3]), (target[1], target[2])):
            _note(place, outer, inner, spreads=False)


def repeated(call: Call, value: Tensor) -> None:
    """Notes ``key.repeat(1, groups, 1, 1)``, which gives k0 k1 k0 k1."""
    counts = call.args[1:]
    if value.axes is None or len(counts) != len(value.axes) or call.spread:
        return
    wider = [index for index, count in enumerate(counts) if count != Scalar(1.0)]
    count = counts[wider[0]] if len(wider) == 1 else None
    if isinstance(count, Scalar):
        _note(call.place, count, value.axes[wider[0]], spreads=True)


def interleaved(call: Call, value: Tensor) -> None:
    """Notes ``key.repeat_interleave(groups, dim=1)``, which gives k0 k0 k1 k1."""
    count, axis = call.arg(1, "repeats"), call.integer(2, "dim")
    if value.axes and isinstance(count, Scalar) and axis is not None and -len(value.axes) <= axis < len(value.axes):
        _note(call.place, value.axes[axis], count, spreads=True)


def _note(place: Place, outer: Scalar | None, inner: Scalar | None, *, spreads: bool) -> None:
    if outer and inner and outer.powers and inner.powers:
        place.record.head_orders.append(HeadOrder(place.draft(StepKind.SPLIT), outer, inner, spreads))


def contradictions(orders: Sequence[HeadOrder]) -> Iterator[tuple[Draft, Draft]]:
    """(where heads of keys are spread, where the same heads lie in the other order). All pairs of one axis, which
    graph attention makes by spreading it both ways, are no heads."""
    for at, spread in enumerate(orders):
        for other in orders:
            is_reverse = spread.outer == other.inner != other.outer == spread.inner
            if spread.spreads and is_reverse and (not other.spreads or other in orders[:at]):
                yield spread.step, other.step


def makes_fewer_keys(layer: Layer) -> bool:
    """Whether the width of a fused projection is a sum of queries and of fewer keys and values."""
    given = layer.kwargs.get("out_features") or (layer.args[1] if len(layer.args) > 1 else None)
    terms = given.terms if isinstance(given, Unknown) else ()
    return {any(_FEWER.search(atom.name) for atom, _ in term.powers) for term in terms} == {True, False}
