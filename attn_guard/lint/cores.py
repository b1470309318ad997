"""Attention cores of other files: ``self.attention(q, k, v)`` with a class that is called dot-product attention.

Given (heads * batch, time, head_dim), and told the number of heads neither when it is made nor when it is called, such
a core cannot take the heads apart: what comes out lies as the query does.
"""

from __future__ import annotations

import re

from attn_guard.lint import layout, names
from attn_guard.lint.fused_scores import attended, masked, scaled_scores
from attn_guard.lint.place import Call
from attn_guard.lint.values import UNKNOWN, Flag, Layer, Nothing, Rate, Scalar, Tensor, Unknown, Value

_CORE = re.compile(r"\w*DotProduct\w*Attention")


def context_of(layer: Layer, call: Call) -> Tensor | None:
    """What a core gives for folded heads; None where the layer is none, or may know the heads."""
    if not _CORE.fullmatch(layer.kind) or not layer.path or call.spread:
        return None
    made, given = (*layer.args, *layer.kwargs.values()), (*call.args, *call.kwargs.values())
    if any(map(_may_know_heads, made)) or any(map(_is_heads, given)):
        return None
    parts = [call.arg(index) for index in range(3)]
    query, key, value = (part if isinstance(part, Tensor) else None for part in parts)
    if query is None or key is None or value is None or not _is_folded(query):
        return None
    scores = masked(call, scaled_scores(call, query, key, UNKNOWN), UNKNOWN).changed(opaque=True)
    return attended(call, scores, value, query)


def _is_heads(value: Value) -> bool:
    return isinstance(value, Scalar) and layout.holds_heads(value)


def _may_know_heads(value: Value) -> bool:
    """Whether an argument of a constructor is the number of heads, or something that may hold it."""
    is_rate = isinstance(value, Unknown) and names.is_dropout_rate(value.name)
    return _is_heads(value) or not (isinstance(value, Scalar | Flag | Nothing | Rate) or is_rate)


def _is_folded(query: Tensor) -> bool:
    """Whether the first of three axes is the heads times something."""
    first = query.axes[0] if query.axes and len(query.axes) == 3 else None
    return first is not None and layout.holds_heads(first) and not layout.is_heads(first)
