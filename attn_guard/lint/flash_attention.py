"""The functions of ``flash_attn``.

They take query, key and value as (batch, time, heads, head_dim), or without padding as (tokens, heads, head_dim), in
three tensors or packed in one or two: ``flash_attn_varlen_qkvpacked_func``. They scale by 1/√head_dim, and drop in
evaluation too.
"""

from __future__ import annotations

import re
from dataclasses import replace

from attn_guard.anatomy import Stage, StepKind
from attn_guard.lint import arithmetic, modes
from attn_guard.lint.attended_axes import over_heads
from attn_guard.lint.fused_scores import attended, masked, scaled_scores
from attn_guard.lint.place import Call, is_absent
from attn_guard.lint.values import Scalar, Sequence, Tensor, Value

_NAME = re.compile(r"flash_attn(?P<unpadded>_varlen|_unpadded)?(?:_(?P<packed>qkv|kv)packed)?_func")
_OPERANDS = {None: ("q", "k", "v"), "kv": ("q", "kv"), "qkv": ("qkv",)}
_LAYOUT = "flash_attn takes (batch, time, heads, head_dim): leave the transpose out"


def is_flash_attention(path: str) -> bool:
    """Whether a function is called like one of them."""
    return "flash_attn" in path and _NAME.fullmatch(path.rpartition(".")[2]) is not None


def flash_attention(call: Call, path: str) -> Value:
    """A call of the function that is imported, or known, as ``path``."""
    form = _NAME.fullmatch(path.rpartition(".")[2])
    assert form is not None, "is_flash_attention"
    names = _OPERANDS[form["packed"]]
    lengths = 0 if not form["unpadded"] else 2 if form["packed"] == "qkv" else 4
    options = _Options(call, len(names) + lengths, path)
    modes.note_rate(call, options.given(0, "dropout_p"), "weights")
    query, key, value = _operands(call, names)
    if query is None or key is None:
        return Tensor()
    over_heads(call.place, query, (query.axes or ())[1:2], (key.axes or ())[1:2], _LAYOUT)
    scores = scaled_scores(options.call, query, key, options.given(1, "softmax_scale"))
    if form["unpadded"] or not is_absent(options.given(3, "window_size")):
        scores = replace(scores, opaque=True)
    if not is_absent(options.given(None, "softcap")):
        scores = replace(scores, bounded=True)
    if not is_absent(options.given(None, "alibi_slopes")):
        scores = scores.after(call.place.draft(StepKind.BIAS, stage=Stage.SCORES, text="alibi_slopes"))
    context = attended(call, masked(options.call, scores, None, options.given(2, "causal")), value, query)
    if path.startswith("flash_attn_interface."):  # some versions give the sums of the exponentials too
        return context.shaped(None, None)
    more = options.given(None, "return_attn_probs")
    return context if is_absent(more) else Sequence((context, Tensor(), Tensor()))


class _Options:
    """What follows the operands. Its order is known of version 2 only; others are read where they have names."""

    def __init__(self, call: Call, start: int, path: str) -> None:
        is_version_2 = path.startswith("flash_attn.") and ".cute" not in path
        is_ordered = is_version_2 or len(call.args) <= start
        self.call = replace(call, spread=call.spread or not is_ordered)
        self._start = start if is_ordered else None

    def given(self, index: int | None, name: str) -> Value | None:
        if index is None or self._start is None:
            return self.call.kwargs.get(name)
        return self.call.given(self._start + index, name)


def _operands(call: Call, names: tuple[str, ...]) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    given = [arithmetic.as_tensor(call.arg(index, name)) for index, name in enumerate(names)]
    if len(given) == 3:
        return given[0], given[1], given[2]
    packed = _part_of(given[-1], Scalar(float(4 - len(given)))) if given[-1] else None
    return (given[0] if len(given) == 2 else packed), packed, packed


def _part_of(packed: Tensor, count: Scalar) -> Tensor:
    """One of the tensors that are packed along the axis before the heads."""
    axes, width = packed.axes, packed.last
    known = axes is not None and len(axes) >= 3 and axes[-3] == count
    part = packed.shaped((*axes[:-3], *axes[-2:]) if axes and known else None, None)
    return replace(part, last=width)
