"""``flex_attention`` and its masks: both are given functions of positions, which are walked with positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from attn_guard.anatomy import StepKind
from attn_guard.lint import arithmetic, mask_use
from attn_guard.lint.attended_axes import over_heads
from attn_guard.lint.fused_scores import attended, masked, scaled_scores
from attn_guard.lint.place import Call, is_absent
from attn_guard.lint.record import Event
from attn_guard.lint.values import UNKNOWN, Closure, Mask, Meaning, Positions, Role, Sequence, Tensor, Value

Walk = Callable[[Closure, Call], Value]

_QUERY, _KEY = Positions(row=1, column=0), Positions(row=0, column=1)


def flex_attention(call: Call, walk: Walk) -> Value:
    """``flex_attention(query, key, value, score_mod, block_mask, scale)``; ``score_mod`` is given scaled scores."""
    query = arithmetic.as_tensor(call.arg(0, "query"))
    key = arithmetic.as_tensor(call.arg(1, "key"))
    value = arithmetic.as_tensor(call.arg(2, "value"))
    if query is None or key is None:
        return Tensor()
    over_heads(call.place, query, (query.axes or ())[-2:-1], (key.axes or ())[-2:-1])
    scores = scaled_scores(call, query, key, call.given(5, "scale"))
    scores = _changed(call, scores, call.given(3, "score_mod"), walk)
    context = attended(call, masked(call, scores, call.given(4, "block_mask")), value, query)
    return context if is_absent(call.given(7, "return_lse")) else Sequence((context, Tensor()))


def _changed(call: Call, scores: Tensor, score_mod: Value | None, walk: Walk) -> Tensor:
    """The scores that ``score_mod(score, batch, head, query, key)`` returns."""
    if is_absent(score_mod):
        return scores
    changed = _walked(call, score_mod, (scores, UNKNOWN, UNKNOWN, _QUERY, _KEY), walk)
    if isinstance(changed, Tensor) and changed.role is Role.SCORES:
        return changed
    return replace(scores, opaque=True, traced=False)


def create_block_mask(call: Call, walk: Walk) -> Value:
    """A mask made of ``mask_mod(batch, head, query, key)``, in which True means attend."""
    mask = _walked(call, call.arg(0, "mask_mod"), (UNKNOWN, UNKNOWN, _QUERY, _KEY), walk)
    if isinstance(mask, Mask):
        mask_use.keeps(call.place, mask)
        if mask.meaning is Meaning.BLOCKS:
            event = Event(
                call.place.draft(StepKind.MASK),
                f"True means blocked in this {mask.name or 'mask'}, but attend in a mask_mod",
                "return the opposite: ~mask",
                mask.made,
                "drawn here",
            )
            call.place.record.misread.append(event)
    return Mask(name="block mask")


def _walked(call: Call, function: Value | None, args: tuple[Value, ...], walk: Walk) -> Value:
    if not isinstance(function, Closure):
        return UNKNOWN
    return walk(function, replace(call, args=args, kwargs={}, spread=False, firm=None))
