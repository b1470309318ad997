"""What ``+ - * / @`` and comparisons do to values. Functions like ``torch.mul`` and ``.eq`` come here too."""

from __future__ import annotations

from dataclasses import replace

from attn_guard.anatomy import Stage, StepKind
from attn_guard.lint import (
    attended_axes,
    grid,
    layout,
    mask_use,
    masks,
    names,
    pooling,
    positions,
    rows,
    softmax_count,
    written_softmax,
)
from attn_guard.lint.place import Place
from attn_guard.lint.record import Event, Operands, Trouble, mask_stage, projection_of
from attn_guard.lint.values import (
    MASKABLE,
    UNKNOWN,
    Atom,
    Axes,
    Draft,
    Filled,
    Flag,
    Kind,
    Mask,
    Meaning,
    Positions,
    Role,
    Scalar,
    Tensor,
    Text,
    Unknown,
    Value,
    same_factors,
    united,
)

AFTER_SOFTMAX = (Role.WEIGHTS, Role.CONTEXT)  # no factor there changes how the scores are scaled


def as_tensor(value: Value) -> Tensor | None:
    """The tensor that a value is or may be. An argument called ``query`` counts as seen from its projection on."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Unknown):
        traced = value.parameter and names.is_query_or_key(value.name)
        return Tensor(traced=traced, name=value.name, timed=value.timed)
    return None


def as_mask(value: Value) -> Mask | None:
    if isinstance(value, Mask):
        return value
    if isinstance(value, Unknown) and not value.rows and names.is_mask(value.name):
        return masks.argument(value.name) if value.parameter else Mask(name=value.name)
    return None


def multiply(place: Place, left: Value, right: Value, *, divides: bool = False) -> Value:
    if isinstance(left, Scalar) and isinstance(right, Scalar):
        return left.times(right)
    for terms, factor in ((_terms(left), right), (_terms(right), left)):
        if len(terms) > 1 and isinstance(factor, Scalar):
            return Unknown(terms=tuple(term.times(factor) for term in terms))
    if isinstance(right, Tensor) and not (isinstance(left, Tensor) and left.role is not Role.PARAMETER):
        left, right = right, left
    if isinstance(left, Tensor):
        _weigh(place, left, right)
        return _scale(place, left, right, divides)
    for mask, factor in ((left, right), (right, left)):
        if isinstance(factor, Scalar) and (found := as_mask(mask)):
            return _scaled_mask(place, found, factor)
        if isinstance(mask, Filled) and isinstance(factor, Scalar) and factor.is_number:
            return Filled(mask.number * factor.number)
        if isinstance(mask, Filled) and isinstance(factor, Mask):
            return _scaled_mask(place, factor, Scalar(mask.number))
    first, second = as_mask(left), as_mask(right)
    if first and second:
        return masks.multiplied(place, first, second)
    return rows.alike(left, right)


def _scale(place: Place, tensor: Tensor, factor: Value, divides: bool) -> Tensor:
    if isinstance(factor, Scalar):
        stage = _STAGES.get(tensor.role)
        step = place.draft(StepKind.SCALE, stage=stage, factor=factor, divides=divides)
        if tensor.role is Role.CONTEXT:
            place.record.add(tensor, step)
        return tensor.after(step)
    if isinstance(factor, Tensor) and factor.role is Role.PARAMETER:
        return tensor.after(place.draft(StepKind.SCALE, stage=_STAGES.get(tensor.role)), bounded=True)
    if isinstance(factor, Unknown) and names.is_rotation(factor.name):
        return tensor  # half of a rotation, which changes no length
    if rows.speaks(factor) and tensor.role is Role.WEIGHTS:
        return rows.filled(place, tensor, 0.0)
    mask = as_mask(factor)
    if mask and tensor.role in MASKABLE:
        step = place.draft(StepKind.MASK, stage=mask_stage(tensor), fill=0.0, text=mask.name)
        return tensor.after(step, zeroed=None)
    if mask and tensor.role is Role.ACTIVATION:
        tensor = pooling.masked(place, tensor, mask)
    hidden = tensor.role is Role.SCORES
    step = place.draft(StepKind.SCALE, stage=_STAGES.get(tensor.role))
    traced = tensor.traced and tensor.role in AFTER_SOFTMAX
    return tensor.after(step, traced=traced, opaque=tensor.opaque or hidden)


def _weigh(place: Place, left: Tensor, right: Value) -> None:
    """``weights * values``."""
    for weights, values in ((left, right), (right, left)):
        is_features = isinstance(values, Unknown | Tensor) and as_mask(values) is None
        if isinstance(weights, Tensor) and weights.role is Role.WEIGHTS and is_features:
            pooling.weigh(place, weights)


_STAGES = {Role.SCORES: Stage.SCORES, Role.WEIGHTS: Stage.WEIGHTS, Role.CONTEXT: Stage.CONTEXT}


def _scaled_mask(place: Place, mask: Mask, factor: Scalar) -> Mask:
    """``(1 - keep) * -1e9``: zeros stay, ones become the number that blocks."""
    if not factor.is_number:
        return Mask(name=mask.name)
    if mask.meaning is Meaning.ADDED:
        return replace(mask, fill=mask.fill * factor.number if mask.fill else None)
    if mask.meaning is Meaning.KEEPS:
        flipped = mask.flags and factor.number <= masks.STRONG_FILL
        return Mask(name=mask.name, flipped=place.draft(StepKind.MASK) if flipped else None)
    return replace(mask, meaning=Meaning.ADDED, fill=factor.number, flags=False, kind=Kind.FLOAT)


def divide(place: Place, left: Value, right: Value) -> Value:
    if isinstance(right, Scalar):
        inverse = right.to_power(-1.0)
        return multiply(place, left, inverse, divides=True) if inverse else UNKNOWN
    if isinstance(left, Tensor) and left.role is Role.WEIGHTS:
        return left.after(place.draft(StepKind.NORM, stage=Stage.WEIGHTS), zeroed=None)
    if isinstance(left, Tensor):
        learned = isinstance(right, Tensor) and right.role is Role.PARAMETER
        step = place.draft(StepKind.SCALE, stage=_STAGES.get(left.role))
        return left.after(step, traced=False, bounded=left.bounded or learned)
    return rows.alike(left, right)


def floor_divide(place: Place, left: Value, right: Value) -> Value:
    if isinstance(left, Scalar) and isinstance(right, Scalar):
        if layout.is_d_model(left) and layout.is_heads(right):
            place.record.unchecked_heads.append(Event(place.draft(StepKind.SPLIT)))
        inverse = right.to_power(-1.0)
        return left.times(inverse) if inverse else UNKNOWN
    if isinstance(left, Unknown) and isinstance(right, Unknown | Scalar):  # only sizes are divided like this
        return Scalar(powers=((Atom(f".shape[{id(place.node)}]"), 1.0),))
    return UNKNOWN


def power(left: Value, right: Value) -> Value:
    if isinstance(left, Scalar) and isinstance(right, Scalar) and right.is_number:
        return left.to_power(right.number) or UNKNOWN
    return UNKNOWN


def add(place: Place, left: Value, right: Value, sign: float = 1.0) -> Value:
    first, second = _terms(left), _terms(right)
    if first and second:
        return _sum(first, second, sign)
    if isinstance(left, Positions) or isinstance(right, Positions):
        return positions.add(left, right, int(sign))
    if isinstance(right, Tensor) and not isinstance(left, Tensor):
        left, right = right, left
    if isinstance(left, Tensor):
        return _add_to_tensor(place, left, right, sign)
    return _combine_masks(place, left, right, sign)


def _terms(value: Value) -> tuple[Scalar, ...]:
    """The sizes that a value is the sum of."""
    if isinstance(value, Scalar):
        return (value,)
    return value.terms if isinstance(value, Unknown) else ()


def _sum(left: tuple[Scalar, ...], right: tuple[Scalar, ...], sign: float) -> Value:
    if len(left) == len(right) == 1 and left[0].powers == right[0].powers:
        number = left[0].number + sign * right[0].number
        return Scalar(number, left[0].powers) if number or not left[0].powers else UNKNOWN
    return Unknown(terms=(*left, *right)) if sign > 0 else UNKNOWN


def _add_to_tensor(place: Place, tensor: Tensor, other: Value, sign: float) -> Tensor:
    if isinstance(other, Tensor) and other.role is tensor.role:
        return _add_tensors(place, tensor, other)
    mask = as_mask(other)
    if tensor.role is Role.SCORES and mask:
        mask_use.added(place, mask, tensor, sign)
        fill = mask.fill * sign if mask.fill is not None and mask.meaning is Meaning.ADDED else None
        step = place.draft(StepKind.MASK, stage=mask_stage(tensor), fill=fill, text=mask.name)
        # scores * keep + (1 - keep) * -1e9: the product alone is no mask yet, the sum is
        steps = tuple(s for s in tensor.steps if not (s.kind is StepKind.MASK and s.fill == 0.0))
        return tensor.changed(steps=(*steps, step))
    if tensor.role in MASKABLE and not isinstance(other, Scalar):
        learned = isinstance(other, Tensor) and other.role is Role.PARAMETER
        text = getattr(other, "name", "")
        return tensor.after(
            place.draft(StepKind.BIAS, stage=mask_stage(tensor), text=text), opaque=tensor.opaque or not learned
        )
    return tensor if isinstance(other, Scalar) else pooling.completed(place, tensor)


def _add_tensors(place: Place, left: Tensor, right: Tensor) -> Tensor:
    """A sum of two scores, two halves of a rotated query, or a residual."""
    left, right = pooling.completed(place, left), pooling.completed(place, right)
    steps = united(left.steps, right.steps)
    is_even = left.role is Role.SCORES or same_factors(left, right)
    if left.role is Role.SCORES:  # a product with a mask in one part of a sum blocks nothing
        steps = tuple(step for step in steps if not (step.kind is StepKind.MASK and step.fill == 0.0))
    elif not is_even:  # nor does a factor of one part scale the sum
        common = {step.identity for step in left.steps} & {step.identity for step in right.steps}
        steps = tuple(step for step in steps if step.kind is not StepKind.SCALE or step.identity in common)
    return left.changed(
        steps=steps,
        traced=left.traced and right.traced and is_even and left.role is not Role.SCORES,
        opaque=left.opaque or right.opaque,
        bounded=left.bounded or right.bounded,
        timed=left.timed or right.timed,
        ran=left.ran or right.ran,
        pads=left.pads or right.pads,
    )


def _combine_masks(place: Place, left: Value, right: Value, sign: float) -> Value:
    if sign < 0 and _is_one(left) and (mask := as_mask(right)):
        return _complement(mask)
    if isinstance(right, Scalar) and sign < 0 and right == Scalar(1.0) and (mask := as_mask(left)):
        return Mask(Meaning.ADDED if mask.meaning is not Meaning.BLOCKS else None, fill=-1.0, name=mask.name)
    first, second = as_mask(left), as_mask(right)
    if first and second:
        same = first.meaning is second.meaning is Meaning.ADDED and first.fill == second.fill
        if same and first.fill == masks.LOWEST:
            place.record.note(Trouble.OVERFLOW, Event(place.draft(StepKind.MASK)))
        return replace(first, meaning=Meaning.ADDED, causal=False) if same else Mask(name=first.name)
    known = first or second
    return Mask(name=known.name) if known else rows.alike(left, right)


def _is_one(value: Value) -> bool:
    """1, or a tensor of ones."""
    return value == Scalar(1.0) or (isinstance(value, Filled) and value.number == 1.0)


def _complement(mask: Mask) -> Mask:
    """``1 - mask``, which is written of ones and zeros only."""
    return replace(mask.inverted(), flags=mask.flags or mask.meaning is not Meaning.ADDED)


def subtract(place: Place, left: Value, right: Value) -> Value:
    return add(place, left, right, sign=-1.0)


def matmul(place: Place, left: Value, right: Value) -> Value:
    first, second = as_mask(left), as_mask(right)
    if first and second:  # the mask of pairs of queries and keys
        return masks.multiplied(place, first, second)
    query, key = as_tensor(left), as_tensor(right)
    if query is None or key is None:
        return UNKNOWN
    if query.role is Role.WEIGHTS or key.role is Role.WEIGHTS:
        weights, value = (query, key) if query.role is Role.WEIGHTS else (key, query)
        axes = layout.product_axes(query, key) if weights is query else None
        summed = grid.summed(weights.grid, -1 if weights is query else -2)
        return attend(place, weights.changed(grid=summed), value, axes)
    if query.role is Role.SCORES and key.role is Role.ACTIVATION:
        softmax_count.note_missing(place, query)
        written_softmax.note_context(place, query, key)
    if key.role is Role.PARAMETER or query.role is Role.PARAMETER:
        is_right = key.role is Role.PARAMETER
        return project(place, query if is_right else key, key.last if is_right else None)
    if query.role is Role.ACTIVATION and key.role is Role.ACTIVATION:
        attended_axes.over_heads(
            place, query, query.axes[-2:-1] if query.axes else (), key.axes[-1:] if key.axes else ()
        )
        width = query.last or (key.axes[-2] if key.axes and len(key.axes) > 1 else key.before_last)
        scores = score(place, query.changed(last=width), key, layout.product_axes(query, key))
        rank = grid.rank_shown(place.node)
        return scores.changed(grid=scores.grid.of_rank(rank)) if scores.grid and rank else scores
    return UNKNOWN


def project(place: Place, value: Tensor | None, width: Scalar | None) -> Tensor:
    """A linear map of features: where the trace of a query or key begins."""
    axes = (*value.axes[:-1], width) if value and value.axes else None
    step = place.draft(StepKind.PROJECTION, text=value.name if value else "")
    plain = Tensor(steps=(step,), traced=True, axes=axes, last=width, order=layout.CONTIGUOUS)
    return plain.changed(timed=value.timed, ran=value.ran, pads=value.pads) if value else plain


def score(place: Place, query: Tensor, key: Tensor, axes: Axes | None = None) -> Tensor:
    """Scores of a query and a key, with what both went through; ``axes`` are the sizes of the product.

    The product of a key and a value, as linear attention makes it, holds no scores.
    """
    first, second = query.name, key.name
    if (names.is_key(first) and names.is_value(second)) or (names.is_value(first) and names.is_key(second)):
        return Tensor(axes=axes, last=axes[-1] if axes else None)
    step = place.draft(StepKind.SCORES, stage=Stage.SCORES)
    core = replace(step, text=query.name)
    place.record.operands.append(Operands(core, projection_of(query), projection_of(key)))
    steps = (*_staged(query.steps, Stage.QUERY), *_staged(key.steps, Stage.KEY), core)
    return Tensor(
        Role.SCORES,
        steps,
        traced=query.traced and key.traced and _is_projected(query) == _is_projected(key),
        opaque=query.opaque or key.opaque,
        bounded=query.bounded or key.bounded,
        axes=axes,
        last=axes[-1] if axes else None,
        order=layout.CONTIGUOUS,
        core=core,
        width=query.last or key.last or layout.width(query),
        grown=key.grown,
        grid=grid.of_product(query, key, axes),
    )


def _is_projected(tensor: Tensor) -> bool:
    """Bilinear attention projects one side only, and is not scaled by design (Luong et al. 2015)."""
    return any(step.kind is StepKind.PROJECTION for step in tensor.steps)


def _staged(steps: tuple[Draft, ...], stage: Stage) -> tuple[Draft, ...]:
    return tuple(step if step.stage is stage else replace(step, stage=stage) for step in steps)


def attend(place: Place, weights: Tensor, value: Tensor | None, axes: Axes | None = None) -> Tensor:
    """The context: weights applied to values; ``axes`` are the sizes of the product."""
    pooling.weigh(place, weights)
    step = place.draft(StepKind.CONTEXT, stage=Stage.CONTEXT)
    flow = weights.after(*_value_steps(value), step)
    for operands in reversed(place.record.operands):
        if weights.core and operands.core.node is weights.core.node:
            operands.value = projection_of(value)
            operands.is_value_bare = value is not None and bool(value.name) and not operands.value
            break
    last = axes[-1] if axes else value.last if value else None
    context = flow.changed(role=Role.CONTEXT, axes=axes, last=last, order=layout.CONTIGUOUS)
    place.record.see(context, place.region)
    return context


def _value_steps(value: Tensor | None) -> tuple[Draft, ...]:
    """Where a value comes from and how its heads were cut."""
    steps = value.steps if value and value.role is Role.ACTIVATION else ()
    kept = tuple(step for step in steps if step.kind in (StepKind.PROJECTION, StepKind.SPLIT))
    return _staged(kept, Stage.VALUE)


def compare(place: Place, left: Value, right: Value, equal: bool) -> Value:
    """``left == right`` (or ``!=``): inverts masks, and makes padding masks out of token ids."""
    for value, other in ((left, right), (right, left)):
        if mask := as_mask(value):
            number = _truth(other)
            if number is not None:
                return masks.tested(mask, is_true=(number == 1.0) == equal)
        if isinstance(value, Unknown | Tensor) and _is_pad(other):
            _check_pad(place, value.name, other)
            meaning = Meaning.BLOCKS if equal else Meaning.KEEPS
            rank = len(value.axes) if isinstance(value, Tensor) and value.axes else None
            flat = rank == 2
            return Mask(meaning, name="padding", flags=True, kind=Kind.BOOL, padding=True, rank=rank, per_sample=flat)
    return rows.alike(left, right)


def ordered(place: Place, left: Value, operator: str, right: Value) -> Value:
    """``left < right`` and the like: of positions, or of a mask against 0 or 0.5."""
    if isinstance(left, Positions) or isinstance(right, Positions):
        return positions.compare(place, left, operator, right)
    mask = as_mask(left)
    number = right.number if isinstance(right, Scalar) and right.is_number else None
    if mask is None or number is None or not 0.0 <= number < 1.0 or operator not in ("<", ">"):
        return rows.alike(left, right)
    if mask.meaning is Meaning.ADDED:
        return masks.tested(mask, is_true=operator == "<") if number == 0.0 else UNKNOWN
    return masks.tested(mask, is_true=operator == ">")


def _truth(value: Value) -> float | None:
    if isinstance(value, Flag):
        return float(value.truth)
    if isinstance(value, Scalar) and value.is_number and value.number in (0.0, 1.0):
        return value.number
    return None


def _check_pad(place: Place, ids: str, pad: Value) -> None:
    """Ids of one input that are compared with the padding id of the other."""
    own, others = names.side(ids), names.side(pad.name if isinstance(pad, Unknown) else "")
    if own and others and own != others:
        text = f"ids of the {own} are compared with the padding id of the {others}"
        event = Event(place.draft(StepKind.MASK), text, f"compare them with the padding id of the {own}")
        place.record.note(Trouble.FOREIGN, event)


def _is_pad(value: Value) -> bool:
    if isinstance(value, Unknown):
        return names.is_pad(value.name) and not names.is_mask(value.name)
    if isinstance(value, Text):
        return names.is_pad(value.text)
    return isinstance(value, Scalar) and len(value.powers) == 1 and names.is_pad(value.powers[0][0].name)


def invert(value: Value) -> Value:
    if isinstance(value, Unknown) and value.order:
        return replace(value, order=value.order.opposite)
    mask = as_mask(value)
    return mask.inverted() if mask else rows.alike(value)


def both(place: Place, left: Value, right: Value, *, either: bool) -> Value:
    """``left & right`` or ``left | right``."""
    first, second = as_mask(left), as_mask(right)
    if _never_differ(left, right, either=either):
        return Mask(name=first.name if first else "mask", split=place.draft(StepKind.MASK))
    if first and second:
        return masks.joined(place, first, second, either=either)
    known = first or second
    if known is None:
        return rows.alike(left, right)
    return Mask(name=known.name, flags=known.flags, padding=known.padding)


def _never_differ(left: Value, right: Value, *, either: bool) -> bool:
    """Whether two comparisons are joined to what holds nowhere, or everywhere."""
    first, second = (value.order if isinstance(value, Unknown) else None for value in (left, right))
    if first is None or second is None:
        return False
    return first.opposite.excludes(second.opposite) if either else first.excludes(second)
