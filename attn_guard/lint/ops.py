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
    grid,
    grouping,
    layout,
    mask_use,
    masks,
    modes,
    names,
    reshaping,
    rotary,
    shapes,
    softmax_count,
    written_softmax,
)
from attn_guard.lint.arithmetic import as_mask, as_tensor
from attn_guard.lint.place import Call, integer
from attn_guard.lint.record import Event, mask_stage
from attn_guard.lint.sdpa import scaled_dot_product_attention
from attn_guard.lint.values import (
    UNKNOWN,
    Atom,
    Filled,
    Flag,
    Grown,
    Kind,
    Mask,
    Meaning,
    Nothing,
    Positions,
    Role,
    Scalar,
    Sequence,
    Shape,
    Tensor,
    Text,
    Triangle,
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
    if isinstance(value, Tensor) and value.role in arithmetic.MASKABLE:
        return value.after(call.place.draft(StepKind.DROPOUT, stage=mask_stage(value)))
    return value


def contiguous(call: Call) -> Value:
    value = call.arg(0)
    return replace(value, order=layout.CONTIGUOUS) if isinstance(value, Tensor) else value


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
    return expanded(call)


def interleaved(call: Call) -> Value:
    value = call.arg(0, "input")
    if isinstance(value, Tensor):
        grouping.interleaved(call, value)
    return expanded(call)


def chunk(call: Call) -> Value:
    """``tensor_split``: parts that all went through the same."""
    value = call.arg(0, "input")
    if isinstance(value, Tensor):
        value = value.shaped(None, None)
    return Sequence((value,), endless=True)


def split(call: Call) -> Value:
    """``x.split(size, dim)`` and ``x.split([first, second], dim)``."""
    value, sizes, at = call.arg(0, "input"), call.arg(1, "split_size_or_sections"), call.given(2, "dim")
    if not isinstance(value, Tensor):
        return Sequence((value,), endless=True)
    axis = 0 if at is None else integer(at)
    if isinstance(sizes, Sequence) and not sizes.endless:
        return Sequence(tuple(_cut(value, axis, size) for size in sizes.items))
    return Sequence((_cut(value, axis, sizes),), endless=True)


def _cut(value: Tensor, axis: int | None, size: Value) -> Tensor:
    """A piece along one axis."""
    width = size if isinstance(size, Scalar) else None
    if value.axes is None:
        return replace(value.shaped(None, None), last=width if axis == -1 else None)
    rank = len(value.axes)
    if axis is None or not -rank <= axis < rank:
        return value.shaped(None, None)
    return value.shaped((*value.axes[: axis % rank], width, *value.axes[axis % rank + 1 :]), None)


def chunk_equal(call: Call) -> Value:
    value = call.arg(0, "input")
    parts = call.integer(1, "chunks")
    axis = call.integer(2, "dim", "axis")
    if isinstance(value, Tensor):
        rank = len(value.axes) if value.axes else 0
        source = value.steps[-1] if value.steps else None
        if parts == 3 and axis in (-1, 2) and source and source.kind is StepKind.PROJECTION:
            call.place.record.thirds.append((call.place.draft(StepKind.SPLIT), source))
        if parts and axis is not None and axis in (-1, rank - 1):
            last = layout.divided(value.last, parts)
            axes = (*value.axes[:-1], last) if value.axes else None
            value = replace(value, axes=axes, last=last, order=None, grid=None)
        else:
            value = value.shaped(None, None)
    return Sequence((value,) * parts) if parts else Sequence((value,), endless=True)


def unbind(call: Call) -> Value:
    value = call.arg(0, "input")
    if isinstance(value, Tensor):
        first = call.integer(1, "dim")
        if first == -1 and value.steps and value.steps[-1].kind is StepKind.PROJECTION:
            value = replace(
                value, traced=False
            )  # the features themselves are taken apart, so none are left to sum over
        item = layout.indexed(value) if first in (None, 0) else replace(value, axes=None, order=None, grid=None)
        return Sequence((item,), endless=True)
    return Sequence((value,), endless=True)


def joined(call: Call) -> Value:
    """``cat``: what is known of the parts that are known."""
    parts = call.arg(0, "tensors")
    items = parts.items if isinstance(parts, Sequence) else ()
    known = [item for item in items if isinstance(item, Tensor) and item.steps]
    if known:
        rest = replace(known[-1], axes=reshaping.joined_axes(call, known), order=None, before_last=None)
        if len(known) == 1 and any(isinstance(item, Unknown) and names.is_cache(item.name) for item in items):
            rest = replace(rest, grown=Grown(call.place.draft(StepKind.SPLIT), call.place.record.branches))
        return replace(rest, opaque=rest.opaque or rest.role is Role.SCORES)
    masks = [mask for item in items if (mask := as_mask(item))]
    if masks:
        return Mask(masks[0].meaning if all(m.meaning is masks[0].meaning for m in masks) else None, name=masks[0].name)
    plain = [item for item in items if isinstance(item, Tensor) and item.role is Role.ACTIVATION]
    return Tensor(axes=reshaping.joined_axes(call, plain)) if plain else UNKNOWN


def stacked(call: Call) -> Value:
    """``stack``, which gives one more axis."""
    value = joined(call)
    return replace(value, axes=None) if isinstance(value, Tensor) else value


def normalize(call: Call) -> Value:
    return normalised(call, call.arg(0, "input"))


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
        weights = replace(value.after(step), role=Role.WEIGHTS, grid=ran)
        call.place.record.see(weights, call.place.region)
        return weights
    if isinstance(value, Tensor) and softmax_count.is_second(value, softmax_axis(call, value)):
        softmax_count.note_second(call.place, value)
        return value
    return Tensor(Role.WEIGHTS)


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
    fill = number_of(call.arg(2, "value"))
    return fill_where(call, value, as_mask(mask), fill)


def fill_where(call: Call, value: Value, mask: Mask | None, fill: float | None) -> Value:
    """``value`` with ``fill`` where the mask is True."""
    if isinstance(value, Tensor) and value.role in arithmetic.MASKABLE:
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
        return value.after(step)
    if fill is not None and fill <= masks.STRONG_FILL and (isinstance(value, Filled) or as_mask(value)):
        return _additive(fill, mask, value)
    if isinstance(value, Mask) and value.meaning is Meaning.ADDED:
        return value
    if isinstance(value, Filled) or as_mask(value):
        return Mask(name="mask")
    return value


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
        if isinstance(value, Tensor) and value.role in arithmetic.MASKABLE:
            if isinstance(filling, Tensor) and filling.role in arithmetic.MASKABLE:
                return replace(value, opaque=True, traced=False)
            inverted = mask.inverted() if mask and value is kept else mask
            return fill_where(call, value, inverted, number_of(filling))
    fills = [fill for fill in (number_of(kept), number_of(other)) if fill is not None]
    if len(fills) == 2 and min(fills) <= masks.STRONG_FILL:
        mask = as_mask(condition)
        return _additive(min(fills), mask.inverted() if mask and number_of(other) == min(fills) else mask)
    return UNKNOWN


def where_method(call: Call) -> Value:
    return where(replace(call, args=(call.arg(1, "condition"), call.arg(0), call.arg(2, "other"))))


def triangle(call: Call) -> Value:
    """``triu`` and ``tril`` of ones, or of the number that blocks."""
    upper = call.kwargs.get("upper") == Flag(True)
    value, diagonal = call.arg(0, "input"), call.given(1, "diagonal", "k")
    if isinstance(value, Tensor) and value.role in arithmetic.MASKABLE:
        return value.after(call.place.draft(StepKind.MASK, stage=mask_stage(value), fill=0.0, text="triangle"))
    shift = 0 if diagonal is None else integer(diagonal)
    return masks.triangle_of(value, call.place.draft(StepKind.MASK), upper=upper, diagonal=shift)


def triu(call: Call) -> Value:
    return triangle(replace(call, kwargs={**call.kwargs, "upper": Flag(True)}))


def filled(number: float) -> Op:
    """``torch.ones(t, t)`` and its kin."""
    return lambda call: Filled(number, shapes.is_square(call, 0), _kind(call, Kind.FLOAT))


def filled_alike(number: float) -> Op:
    """``torch.ones_like(x)`` and ``x.new_ones(t, t)``."""
    return lambda call: Filled(number, shapes.is_square(call, 1), _kind(call, None))


def full(call: Call) -> Value:
    """``torch.full((t, t), number)``, and ``torch.full_like(x, number)``."""
    value = call.arg(1, "fill_value")
    if isinstance(value, Scalar) and not value.is_number:
        return value
    number, kind = (1.0, Kind.BOOL) if value == Flag(True) else (number_of(value), Kind.FLOAT)
    return UNKNOWN if number is None else Filled(number, shapes.is_square(call, 0), _kind(call, kind))


def full_new(call: Call) -> Value:
    """``x.new_full(size, fill)``."""
    return full(replace(call, args=call.args[1:]))


def fill_all(call: Call) -> Value:
    """``tensor.fill_(number)``."""
    value, number = call.arg(0), number_of(call.arg(1, "value"))
    if not isinstance(value, Filled):
        return UNKNOWN if isinstance(value, Mask) else value
    return UNKNOWN if number is None else replace(value, number=number)


def _kind(call: Call, otherwise: Kind | None) -> Kind | None:
    return masks.kind_of(call.kwargs.get("dtype"), otherwise)


def stored_as(kind: Kind) -> Op:
    """``mask.bool()`` and the like."""
    return lambda call: masks.cast(_as_mask_or_self(call.arg(0, "input")), kind)


def _as_mask_or_self(value: Value) -> Value:
    return as_mask(value) or value


def converted(call: Call) -> Value:
    """``mask.to(...)``, ``mask.type_as(...)``: to a device, which changes nothing here, or to another dtype."""
    value = call.arg(0, "input")
    if not isinstance(value, Mask | Filled):
        return value
    for given in (*call.args[1:], *call.kwargs.values()):
        if isinstance(given, Tensor) or kind_given(given):
            return masks.cast(value, Kind.FLOAT if isinstance(given, Tensor) else masks.kind_of(given))
    return value


def kind_given(value: Value) -> bool:
    """Whether an argument of ``to`` is a dtype."""
    return getattr(value, "name", "") == "dtype" or masks.kind_of(value) is not None


def scalar_tensor(call: Call) -> Value:
    value = call.arg(0, "data")
    if isinstance(value, Sequence) and len(value.items) == 1:
        value = value.items[0]
    return value if isinstance(value, Scalar | Mask | Filled | Unknown) else UNKNOWN


def number_of(value: Value) -> float | None:
    if isinstance(value, Scalar) and value.is_number:
        return value.number
    if isinstance(value, Unknown):
        return value.default
    return value.number if isinstance(value, Filled) else None


def root(call: Call) -> Value:
    value = call.arg(0, "input")
    return (value.to_power(0.5) or UNKNOWN) if isinstance(value, Scalar) else UNKNOWN


def inverse_root(call: Call) -> Value:
    value = call.arg(0, "input")
    return (value.to_power(-0.5) or UNKNOWN) if isinstance(value, Scalar) else UNKNOWN


def to_float(call: Call) -> Value:
    value = call.arg(0)
    if isinstance(value, Text):
        try:
            return Scalar(float(value.text))
        except ValueError:
            return UNKNOWN
    return value


def size(call: Call) -> Value:
    value, axis = call.arg(0), call.given(1, "dim")
    return Shape(value) if axis is None else axis_size(value, integer(axis))


def axis_size(value: Value, axis: int | None) -> Value:
    """``value.shape[axis]``: a size of its own where nothing more is known of it."""
    if axis is None:
        return UNKNOWN
    tensor = as_tensor(value)
    if tensor is None:
        return Scalar(powers=((Atom(f"{id(value)}.shape[{axis}]", axis=axis), 1.0),))
    if tensor.axes and -len(tensor.axes) <= axis < len(tensor.axes) and (known := tensor.axes[axis]):
        return known
    if axis == -1:
        return layout.width(tensor)
    if axis == -2 and tensor.before_last:
        return tensor.before_last
    return Scalar(powers=((Atom(f"{tensor.name or id(value)}.shape[{axis}]", axis=axis), 1.0),))


def rank(call: Call) -> Value:
    value = call.arg(0)
    return Scalar(float(len(value.axes))) if isinstance(value, Tensor) and value.axes else UNKNOWN


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
    written_softmax.note_sum(call.place, call.arg(0, "input"))
    return summed(call)


def squashed(call: Call) -> Value:
    """A function such as tanh: what went in can no longer be followed, but it is still scores."""
    value = call.arg(0, "input")
    if isinstance(value, Tensor) and value.role is Role.SCORES:
        return replace(value, traced=False, bounded=True)
    if isinstance(value, Tensor):
        return Tensor(value.role if value.role is Role.WEIGHTS else Role.ACTIVATION)
    return UNKNOWN


def summed(call: Call) -> Value:
    """Sums, means and the like: a sum of weights is what they may be divided by."""
    attended_axes.pooled(call.place, call.arg(0, "input"), call.integer(1, "dim", "axis"))
    return UNKNOWN


def binary(operation: Callable[..., Value]) -> Op:
    return lambda call: operation(call.place, call.arg(0, "input"), call.arg(1, "other"))


def compared(equal: bool) -> Op:
    return lambda call: arithmetic.compare(call.place, call.arg(0, "input"), call.arg(1, "other"), equal)


def ordered(operator: str) -> Op:
    return lambda call: arithmetic.ordered(call.place, call.arg(0, "input"), operator, call.arg(1, "other"))


def square_subsequent_mask(call: Call) -> Value:
    """``nn.Transformer.generate_square_subsequent_mask(t)``: -inf after the own position, 0 up to it."""
    made = call.place.draft(StepKind.MASK)
    triangle = Triangle(upper=True, diagonal=1, square=True)
    return Mask(Meaning.ADDED, -math.inf, True, "causal mask", triangle, made, kind=Kind.FLOAT)


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
    ("normalize layer_norm rms_norm group_norm", normalize),
    ("dropout dropout_ alpha_dropout", dropout),
    (
        "cpu cuda clone detach requires_grad_ nan_to_num nan_to_num_ clamp clamp_ clip as_tensor asarray from_numpy "
        "identity upcast",
        same,
    ),
    ("float half bfloat16 double", stored_as(Kind.FLOAT)),
    ("bool", stored_as(Kind.BOOL)),
    ("int long byte", stored_as(Kind.WHOLE)),
    ("to type type_as astype", converted),
    ("arange", rotary.arange),
    ("contiguous", contiguous),
    ("transpose transpose_ swapaxes swapdims", reshaping.transpose),
    ("t", reshaping.transpose_last),
    ("permute", reshaping.permute),
    ("view", reshaping.view),
    ("reshape", reshaping.reshape),
    ("flatten", reshaping.flatten),
    ("unflatten", reshaping.unflatten),
    ("chunk", chunk_equal),
    ("split split_with_sizes", split),
    ("tensor_split", chunk),
    ("unbind", unbind),
    ("cat concat concatenate", joined),
    ("stack", stacked),
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
    ("tril tril_", triangle),
    ("triu triu_", triu),
    ("ones", filled(1.0)),
    ("ones_like new_ones", filled_alike(1.0)),
    ("zeros", filled(0.0)),
    ("zeros_like new_zeros", filled_alike(0.0)),
    ("empty", filled(math.nan)),
    ("full full_like", full),
    ("new_full", full_new),
    ("fill_", fill_all),
    ("tensor FloatTensor Tensor", scalar_tensor),
    ("sqrt sqrt_", root),
    ("pow", lambda call: arithmetic.power(call.arg(0, "input"), call.arg(1, "exponent"))),
    ("rsqrt", inverse_root),
    ("exp exp_", raised),
    ("tanh tanh_ sigmoid relu gelu silu elu", squashed),
    ("sum", total),
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
    ("generate_square_subsequent_mask", square_subsequent_mask),
    ("logical_not bitwise_not", lambda call: arithmetic.invert(call.arg(0, "input"))),
    ("logical_and bitwise_and", mask_joined(False)),
    ("logical_or bitwise_or", mask_joined(True)),
    ("size", size),
    ("dim ndimension", rank),
    ("finfo iinfo", finfo),
)

METHODS = {**FUNCTIONS, "where": where_method}
