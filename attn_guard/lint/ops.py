"""What tensor operations do to values: one table for functions (``torch.softmax(x)``) and methods (``x.softmax()``)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from attn_guard.anatomy import Stage, StepKind
from attn_guard.lint import (
    arithmetic,
    attended_axes,
    einsum,
    fillings,
    grid,
    grouping,
    layout,
    mask_use,
    masks,
    modes,
    pieces,
    pooling,
    reshaping,
    rotary,
    rows,
    sizes,
    softmax_count,
    written_softmax,
)
from attn_guard.lint.arithmetic import as_mask, as_tensor
from attn_guard.lint.moved_axes import joined_axis
from attn_guard.lint.place import Call, integer
from attn_guard.lint.record import Event, Trouble, mask_stage
from attn_guard.lint.sdpa import scaled_dot_product_attention
from attn_guard.lint.values import (
    MASKABLE,
    UNKNOWN,
    Axes,
    Filled,
    Kind,
    Mask,
    Meaning,
    Nothing,
    Positions,
    Role,
    Scalar,
    Sequence,
    Tensor,
    Unknown,
    Value,
)

Op = Callable[[Call], Value]

OUT_OF_PLACE = frozenset({"masked_fill", "where", "masked_scatter", "index_fill"})


def same(call: Call) -> Value:
    """An operation that changes nothing which matters here: a cast, a copy, dropout."""
    return call.arg(0, "input")


def dropout(call: Call) -> Value:
    """``F.dropout``, which drops in evaluation too unless it is told the mode."""
    value = call.arg(0, "input")
    modes.note_functional(call, value)
    return dropped(call, value)


def dropped(call: Call, value: Value) -> Value:
    if isinstance(value, Tensor) and value.role in MASKABLE:
        return value.after(call.place.draft(StepKind.DROPOUT, stage=mask_stage(value)))
    return value


def contiguous(call: Call) -> Value:
    value = call.arg(0)
    return value.changed(order=layout.CONTIGUOUS) if isinstance(value, Tensor) else value


def reindexed(call: Call) -> Value:
    """An operation that moves or repeats elements in a way whose axes are not followed."""
    value = call.arg(0, "input")
    return value.shaped(None, None) if isinstance(value, Tensor) else masks.moved(value)


def expanded(call: Call) -> Value:
    value = call.arg(0, "input")
    return replace(value, axes=None, order=None, grid=None) if isinstance(value, Tensor) else masks.reshaped(value)


def padded(call: Call) -> Value:
    """``F.pad``: a mask has as many axes as before, but its triangle is moved."""
    value, moved = as_mask(call.arg(0, "input")), reindexed(call)
    if value is None or isinstance(moved, Tensor):
        return moved
    return replace(masks.without_triangle(value), rank=value.rank, per_sample=value.per_sample)


def repeated(call: Call) -> Value:
    value = call.arg(0, "input")
    if isinstance(value, Positions):
        return UNKNOWN
    mask = as_mask(value)
    if mask:
        return masks.tiled(mask, call.place, call.args[1:])
    if isinstance(value, Tensor):
        grouping.repeated(call, value)
        return value.changed(axes=_copied(call, value), order=None, grid=None)
    return expanded(call)


def _copied(call: Call, value: Tensor) -> Axes | None:
    """The axes of ``x.repeat(heads, 1, 1)``; None for copies along another axis than the first."""
    count, *others = call.args[1:] or (UNKNOWN,)
    if value.axes is None or len(others) != len(value.axes) - 1 or any(other != Scalar(1.0) for other in others):
        return None
    return (joined_axis((count, value.axes[0])) if isinstance(count, Scalar) else None, *value.axes[1:])


def interleaved(call: Call) -> Value:
    value = call.arg(0, "input")
    if isinstance(value, Tensor):
        grouping.interleaved(call, value)
    return expanded(call)


def normalize(call: Call) -> Value:
    return normalised(call, call.arg(0, "input"))


def layer_norm(call: Call) -> Value:
    """``F.layer_norm(x, sizes)``, of which a size too many is that of time."""
    value, sizes = call.arg(0, "input"), call.arg(1, "normalized_shape")
    is_sequence = isinstance(value, Tensor) and len(value.axes or ()) == 3
    if is_sequence and isinstance(sizes, Sequence) and not sizes.endless and len(sizes.items) == 2:
        call.place.record.note(Trouble.NORM_OVER_TIME, Event(call.place.draft(StepKind.NORM)))
    return normalised(call, value)


def normalised(call: Call, value: Value) -> Value:
    tensor = as_tensor(value)
    if tensor is not None and tensor.role is Role.WEIGHTS:
        return tensor.after(call.place.draft(StepKind.NORM, stage=Stage.WEIGHTS))
    return tensor.after(call.place.draft(StepKind.NORM), bounded=True) if tensor else UNKNOWN


def softmax(call: Call) -> Value:
    value = call.arg(0, "input")
    if isinstance(value, Tensor) and value.role is Role.SCORES:
        step = call.place.draft(StepKind.SOFTMAX, stage=Stage.SCORES)
        ran = grid.softmaxed(value.grid, softmax_axis(call, value))
        weights = value.after(step).changed(role=Role.WEIGHTS, grid=ran)
        call.place.record.see(weights, call.place.region)
        return weights
    if isinstance(value, Tensor) and softmax_count.is_second(value, softmax_axis(call, value)):
        softmax_count.note_second(call.place, value)
        return value
    return pooling.weights(value)


def softmax_axis(call: Call, scores: Tensor) -> int | None:
    """The axis that a softmax runs along; without a `dim`, torch chooses by the number of axes."""
    axis = call.given(1, "dim", "axis")
    if axis is not None and not isinstance(axis, Nothing):
        return integer(axis)
    if call.spread or scores.grid is None or not scores.grid.whole:
        return None
    return 0 if len(scores.grid.axes) in (1, 3) else 1


def masked_fill(call: Call) -> Value:
    value, mask = call.arg(0, "input"), call.arg(1, "mask")
    fill = sizes.number_of(call.arg(2, "value"))
    if isinstance(value, Tensor) and rows.speaks(mask) and rows.are_filled(value, mask, fill):
        return rows.filled(call.place, value, fill)
    return fill_where(call, value, as_mask(mask), fill)


def fill_where(call: Call, value: Value, mask: Mask | None, fill: float | None) -> Value:
    """``value`` with ``fill`` where the mask is True."""
    if isinstance(value, Tensor) and value.role in MASKABLE:
        step = call.place.draft(StepKind.MASK, stage=mask_stage(value), fill=fill, text=mask.name if mask else "")
        blocks = fill is not None and fill <= masks.STRONG_FILL
        if mask and mask.meaning is Meaning.KEEPS and blocks and value.role is Role.SCORES:
            call.place.record.misread.append(
                Event(
                    step, "the scores are filled where the mask says that a key is attended", "invert the mask: ~mask"
                )
            )
        if value.role is Role.SCORES and blocks:
            mask_use.blocks(call.place, mask, value, fill)
        return value.after(step, zeroed=None)
    if fill is not None and fill <= masks.STRONG_FILL and (isinstance(value, Filled) or as_mask(value)):
        return _additive(fill, mask, value)
    if isinstance(value, Mask) and value.meaning is Meaning.ADDED:
        return value
    if isinstance(value, Filled) or as_mask(value):
        return Mask(name="mask")
    return pooling.completed(call.place, value) if isinstance(value, Tensor) else value


def _additive(fill: float, mask: Mask | None, value: Value = UNKNOWN) -> Mask:
    """A mask to be added, which holds ``fill`` where ``mask`` is True, and where ``value`` already did."""
    mask, before = mask or Mask(), value if isinstance(value, Mask) and value.meaning is Meaning.ADDED else Mask()
    drawn = before if before.triangle else mask
    return Mask(
        Meaning.ADDED,
        fill,
        mask.causal,
        "mask",
        drawn.triangle if not (before.triangle and mask.triangle) else None,
        drawn.made,
        kind=Kind.FLOAT,
        padding=mask.padding or before.padding,
        origin=mask.origin,
        negated=mask.negated,
        rank=mask.rank,
        per_sample=mask.per_sample,
        split=mask.split,
    )


def where(call: Call) -> Value:
    """``torch.where(condition, kept, other)``, and ``kept.where(condition, other)`` (see `where_method`)."""
    condition, kept, other = (call.arg(index) for index in range(3))
    for value, filling, mask in ((kept, other, as_mask(condition)), (other, kept, as_mask(condition))):
        if isinstance(value, Tensor) and value.role in MASKABLE:
            if isinstance(filling, Tensor) and filling.role in MASKABLE:
                return replace(value, opaque=True, traced=False)
            fill = sizes.number_of(filling)
            if rows.speaks(condition) and rows.are_filled(value, condition, fill):
                return rows.filled(call.place, value, fill)
            return fill_where(call, value, mask.inverted() if mask and value is kept else mask, fill)
    fills = [fill for fill in (sizes.number_of(kept), sizes.number_of(other)) if fill is not None]
    if len(fills) == 2 and min(fills) <= masks.STRONG_FILL:
        mask = as_mask(condition)
        return _additive(min(fills), mask.inverted() if mask and sizes.number_of(other) == min(fills) else mask)
    return UNKNOWN


def where_method(call: Call) -> Value:
    return where(replace(call, args=(call.arg(1, "condition"), call.arg(0), call.arg(2, "other"))))


def stored_as(kind: Kind) -> Op:
    """``mask.bool()`` and the like."""
    return lambda call: masks.cast(_as_mask_or_self(call.arg(0, "input")), kind)


def _as_mask_or_self(value: Value) -> Value:
    return as_mask(value) or value


def converted(call: Call) -> Value:
    """``mask.to(...)``, ``mask.type_as(...)``: to a device, which changes nothing here, or to another dtype."""
    value = call.arg(0, "input")
    stored = _as_mask_or_self(value)
    if not isinstance(stored, Mask | Filled):
        return value
    for given in (*call.args[1:], *call.kwargs.values()):
        if isinstance(given, Tensor) or kind_given(given):
            return masks.cast(stored, Kind.FLOAT if isinstance(given, Tensor) else masks.kind_of(given))
    return value


def kind_given(value: Value) -> bool:
    """Whether an argument of ``to`` is a dtype."""
    return getattr(value, "name", "") == "dtype" or masks.kind_of(value) is not None


def scalar_tensor(call: Call) -> Value:
    value = call.arg(0, "data")
    if isinstance(value, Sequence) and len(value.items) == 1:
        value = value.items[0]
    sizes = tuple(size for size in call.args if isinstance(size, Scalar))
    if len(sizes) == len(call.args) > 1:  # torch.FloatTensor(heads, d_model, head_dim)
        return Tensor(axes=sizes, last=sizes[-1])
    return value if isinstance(value, Scalar | Mask | Filled | Unknown) else UNKNOWN


def baddbmm(call: Call) -> Value:
    """``beta * bias + alpha * (query @ key)``."""
    scores = arithmetic.matmul(call.place, call.arg(1, "batch1"), call.arg(2, "batch2"))
    alpha, beta = call.kwargs.get("alpha"), call.kwargs.get("beta")
    if alpha is not None:
        scores = arithmetic.multiply(call.place, scores, alpha)
    if isinstance(beta, Scalar) and beta == Scalar(0.0):
        return scores
    bias = call.arg(0, "input")
    if isinstance(bias, Unknown) and not as_mask(bias) and not isinstance(scores, Tensor):
        return scores
    return arithmetic.add(call.place, scores, bias)


def ranked_product(rank: int) -> Op:
    """A product that only takes tensors of so many axes."""

    def product(call: Call) -> Value:
        result = binary(arithmetic.matmul)(call)
        if isinstance(result, Tensor) and result.grid and result.role is Role.SCORES:
            return replace(result, grid=result.grid.of_rank(rank))
        return result

    return product


def linear(call: Call) -> Value:
    return arithmetic.project(call.place, as_tensor(call.arg(0, "input")), None)


def raised(call: Call) -> Value:
    """``exp``, with which a softmax may begin."""
    value = call.arg(0, "input")
    if isinstance(value, Tensor) and value.role is Role.SCORES:
        call = replace(call, args=(written_softmax.raised(call, value), *call.args[1:]))
    return squashed(call)


def total(call: Call) -> Value:
    """``sum``"""
    value = call.arg(0, "input")
    written_softmax.note_sum(call.place, value)
    return rows.reduced(call) if isinstance(value, Unknown | Mask) else summed(call)


def squashed(call: Call) -> Value:
    """A function such as tanh: what went in can no longer be followed, but it is still scores."""
    value = call.arg(0, "input")
    if isinstance(value, Tensor) and value.role is Role.SCORES:
        return value.changed(traced=False, bounded=True)
    if isinstance(value, Tensor):
        return Tensor(value.role if value.role is Role.WEIGHTS else Role.ACTIVATION)
    return rows.alike(value)


def summed(call: Call) -> Value:
    """Sums, means and the like: a sum of weights is what they may be divided by."""
    value = call.arg(0, "input")
    attended_axes.pooled(call.place, value, call.integer(1, "dim", "axis"))
    return rows.reduced(call) if isinstance(value, Tensor) else UNKNOWN


def binary(operation: Callable[..., Value]) -> Op:
    return lambda call: operation(call.place, call.arg(0, "input"), call.arg(1, "other"))


def compared(equal: bool) -> Op:
    return lambda call: arithmetic.compare(call.place, call.arg(0, "input"), call.arg(1, "other"), equal)


def ordered(operator: str) -> Op:
    return lambda call: arithmetic.ordered(call.place, call.arg(0, "input"), operator, call.arg(1, "other"))


def finfo(call: Call) -> Value:
    return Unknown("finfo")


def mask_joined(either: bool) -> Op:
    return lambda call: arithmetic.both(call.place, call.arg(0, "input"), call.arg(1, "other"), either=either)


def _table(*groups: tuple[str, Op]) -> dict[str, Op]:
    return {name: op for names, op in groups for name in names.split()}


FUNCTIONS = _table(
    ("softmax softmax_", softmax),
    ("scaled_dot_product_attention", scaled_dot_product_attention),
    ("matmul", binary(arithmetic.matmul)),
    ("bmm", ranked_product(3)),
    ("mm", ranked_product(2)),
    ("baddbmm", baddbmm),
    ("einsum", einsum.einsum),
    ("rearrange", einsum.rearrange),
    ("linear", linear),
    ("normalize rms_norm group_norm", normalize),
    ("layer_norm", layer_norm),
    ("dropout dropout_ alpha_dropout", dropout),
    (
        "cpu cuda clone detach requires_grad_ nan_to_num nan_to_num_ clamp clamp_ clip as_tensor asarray from_numpy "
        "identity upcast compile",
        same,
    ),
    ("float half bfloat16 double", stored_as(Kind.FLOAT)),
    ("bool", stored_as(Kind.BOOL)),
    ("int long byte", stored_as(Kind.WHOLE)),
    ("to type type_as astype", converted),
    ("arange", rotary.arange),
    ("cos cos_ sin sin_", rotary.half_of_a_rotation),
    ("contiguous", contiguous),
    ("transpose transpose_ swapaxes swapdims", reshaping.transpose),
    ("t", reshaping.transpose_last),
    ("permute", reshaping.permute),
    ("view", reshaping.view),
    ("reshape", reshaping.reshape),
    ("flatten", reshaping.flatten),
    ("unflatten", reshaping.unflatten),
    ("chunk", pieces.chunk_equal),
    ("split split_with_sizes", pieces.split),
    ("tensor_split", pieces.chunk),
    ("unbind", pieces.unbind),
    ("cat concat concatenate", pieces.joined),
    ("stack", pieces.stacked),
    ("unsqueeze unsqueeze_", reshaping.unsqueeze),
    ("squeeze squeeze_", reshaping.squeeze),
    ("movedim moveaxis", reshaping.movedim),
    ("repeat tile", repeated),
    ("repeat_interleave", interleaved),
    ("pad", padded),
    ("expand expand_as broadcast_to index_select", expanded),
    ("gather", reshaping.gather),
    ("roll flip narrow select view_as reshape_as", reindexed),
    ("masked_fill masked_fill_", masked_fill),
    ("where", where),
    ("tril tril_", fillings.triangle),
    ("triu triu_", fillings.triu),
    ("ones", fillings.filled(1.0)),
    ("ones_like new_ones", fillings.filled_alike(1.0)),
    ("zeros", fillings.filled(0.0)),
    ("zeros_like new_zeros", fillings.filled_alike(0.0)),
    ("empty", fillings.filled(math.nan)),
    ("full full_like", fillings.full),
    ("new_full", fillings.full_new),
    ("fill_", fillings.fill_all),
    ("tensor FloatTensor Tensor", scalar_tensor),
    ("sqrt sqrt_", sizes.root),
    ("pow", lambda call: arithmetic.power(call.arg(0, "input"), call.arg(1, "exponent"))),
    ("rsqrt", sizes.inverse_root),
    ("exp exp_", raised),
    ("tanh tanh_ sigmoid relu gelu silu elu", squashed),
    ("sum", total),
    ("any all", rows.reduced),
    ("isnan", rows.missing),
    ("mean max amax min std norm abs cumsum argmax item", summed),
    ("mul mul_ multiply", binary(arithmetic.multiply)),
    ("div div_ divide true_divide", binary(arithmetic.divide)),
    ("add add_", binary(arithmetic.add)),
    ("sub sub_ subtract", binary(arithmetic.subtract)),
    ("eq", compared(True)),
    ("ne not_equal", compared(False)),
    ("lt less", ordered("<")),
    ("le less_equal", ordered("<=")),
    ("gt greater", ordered(">")),
    ("ge greater_equal", ordered(">=")),
    ("generate_square_subsequent_mask", fillings.square_subsequent_mask),
    ("logical_not bitwise_not", lambda call: arithmetic.invert(call.arg(0, "input"))),
    ("logical_and bitwise_and", mask_joined(False)),
    ("logical_or bitwise_or", mask_joined(True)),
    ("size", sizes.size),
    ("dim ndimension", sizes.rank),
    ("finfo iinfo", finfo),
)

METHODS = {**FUNCTIONS, "where": where_method}
