"""What happens inside every fused attention: scores, their scale, masks, the softmax and the product with the value."""

from __future__ import annotations

from dataclasses import replace

from attn_guard.anatomy import Size, Stage, StepKind
from attn_guard.lint import arithmetic
from attn_guard.lint.place import Call, is_absent
from attn_guard.lint.values import Atom, Flag, Mask, Role, Scalar, Tensor, Value

_IMPLICIT_SCALE = Scalar(powers=((Atom("head_dim of the built-in", Size.HEAD_DIM), -0.5),))


def scaled_scores(call: Call, query: Tensor, key: Tensor, scale: Value | None) -> Tensor:
    """Scores times ``scale``, or times 1/√head_dim where none is given."""
    scores = arithmetic.score(call.place, replace(query, role=Role.ACTIVATION), replace(key, role=Role.ACTIVATION))
    if call.spread:
        scores = replace(scores, opaque=True, traced=False)
    factor = _IMPLICIT_SCALE if is_absent(scale) else scale
    step = call.place.draft(StepKind.SCALE, stage=Stage.SCORES, factor=factor if isinstance(factor, Scalar) else None)
    return scores.after(step, traced=scores.traced and isinstance(factor, Scalar))


def masked(call: Call, scores: Tensor, mask: Value | None, is_causal: Value | None = None) -> Tensor:
    """Scores under a mask and a causal mask, where they are given."""
    if not is_absent(mask):
        fill = mask.fill if isinstance(mask, Mask) else None
        name = mask.name if isinstance(mask, Mask) else ""
        scores = scores.after(call.place.draft(StepKind.MASK, stage=Stage.SCORES, fill=fill, text=name))
    if not is_absent(is_causal) and is_causal != Flag(False):
        scores = scores.after(call.place.draft(StepKind.MASK, stage=Stage.SCORES, text="is_causal"))
    return scores


def attended(call: Call, scores: Tensor, value: Tensor | None, query: Tensor) -> Tensor:
    """The context, whose axes are those of the query."""
    weights = replace(scores.after(call.place.draft(StepKind.SOFTMAX, stage=Stage.SCORES)), role=Role.WEIGHTS)
    context = arithmetic.attend(call.place, weights, value)
    same_rank = query.axes is not None and value is not None and value.axes is not None
    axes = (*query.axes[:-1], value.axes[-1]) if same_rank and query.axes and value and value.axes else None
    return replace(context, axes=axes, last=axes[-1] if axes else None, order=None)
