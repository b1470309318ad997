"""``memory_efficient_attention`` of xformers.

It takes query, key and value as (batch, time, heads, head_dim) or (batch * heads, time, head_dim), scales by
1/√head_dim, and drops in evaluation too.
"""

from __future__ import annotations

from attn_guard.lint import arithmetic, modes
from attn_guard.lint.attended_axes import over_heads
from attn_guard.lint.fused_scores import attended, masked, scaled_scores
from attn_guard.lint.place import Call
from attn_guard.lint.values import Tensor, Value

NAME = "memory_efficient_attention"
_LAYOUT = "memory_efficient_attention takes (batch, time, heads, head_dim): leave the transpose out"


def memory_efficient_attention(call: Call) -> Value:
    query, key, value = (
        arithmetic.as_tensor(call.arg(index, name)) for index, name in enumerate(("query", "key", "value"))
    )
    modes.note_rate(call, call.given(4, "p"), "weights")
    if query is None or key is None:
        return Tensor()
    over_heads(call.place, query, (query.axes or ())[1:2], (key.axes or ())[1:2], _LAYOUT)
    scores = scaled_scores(call, query, key, call.given(5, "scale"))
    return attended(call, masked(call, scores, call.given(3, "attn_bias")), value, query)
