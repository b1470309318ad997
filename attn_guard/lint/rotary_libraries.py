"""The axis along which rotary functions of well-known libraries count positions."""

from __future__ import annotations

import re
from functools import lru_cache

from attn_guard.lint import layout, rotary
from attn_guard.lint.place import Call
from attn_guard.lint.values import Tensor

_COUNTED = (
    (re.compile(r"xformers\..*\bRotaryEmbedding"), -2),  # (batch, heads, time, head_dim)
    (re.compile(r"rotary_embedding_torch\..*\brotate_queries_or_keys"), -2),
    (re.compile(r"torchtune\..*\bRotaryPositionalEmbeddings"), 1),  # (batch, time, heads, head_dim)
    (re.compile(r"flash_attn\..*\bapply_rotary_emb"), 1),
)
_CHOOSES = {"seq_dim", "seq_before_head_dim", "cu_seqlens"}


@lru_cache(maxsize=10_000)
def _counted(path: str) -> int | None:
    return next((axis for pattern, axis in _COUNTED if pattern.fullmatch(path)), None)


def note_counted(path: str, call: Call) -> None:
    """Notes a call of ``path`` whose tensors have the heads where it counts positions."""
    axis = _counted(path)
    if axis is None or call.spread or _CHOOSES & call.kwargs.keys():
        return
    if any(isinstance(v, Tensor) and v.axes and len(v.axes) == 4 and layout.is_heads(v.axes[axis]) for v in call.args):
        rotary.note(call.place)
