"""What operations do to masks, and what is wrong with a mask where it is used."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import replace

from attn_guard.anatomy import StepKind
from attn_guard.lint import names
from attn_guard.lint import nodes as cst
from attn_guard.lint.place import Place
from attn_guard.lint.values import (
    UNKNOWN,
    Bound,
    Dotted,
    Draft,
    Filled,
    Kind,
    Mask,
    Meaning,
    Scalar,
    Tensor,
    Triangle,
    Unknown,
    Value,
)

STRONG_FILL = -1e3  # below this a fill is meant to block


LOWEST = -3.4028234663852886e38  # stands for finfo(dtype).min of any dtype


def argument(name: str, meaning: Meaning | None = None) -> Mask:
    """A mask that a function is given. One called key_padding_mask is (batch, keys), as torch has it."""
    of_keys = names.is_key_padding_mask(name)
    return Mask(
        meaning,
        name=name,
        flags=meaning in (Meaning.BLOCKS, Meaning.KEEPS),
        padding=of_keys,
        origin=name,
        rank=2 if of_keys else None,
        per_sample=of_keys,
    )


def drawn(triangle: Triangle, made: Draft, kind: Kind | None) -> Mask:
    """A mask that is True, or 1, in a triangle. Only of a causal one is it sure what that means."""
    meaning = {(True, 1): Meaning.BLOCKS, (False, 0): Meaning.KEEPS}.get((triangle.upper, triangle.diagonal))
    return Mask(meaning, causal=True, name="causal mask", triangle=triangle, made=made, flags=True, kind=kind)


def triangle_of(value: Value, made: Draft, *, upper: bool, diagonal: int | None) -> Mask:
    """``triu`` or ``tril`` of a value."""
    if not isinstance(value, Filled) or diagonal is None:  # also a band, whose other side is cut already
        flags = (isinstance(value, Mask) and value.flags) or (isinstance(value, Filled) and value.number == 1.0)
        return Mask(causal=True, name="causal mask", flags=flags, kind=getattr(value, "kind", None))
    triangle = Triangle(upper, diagonal, value.square)
    if value.number == 1.0:
        return drawn(triangle, made, value.kind)
    if value.number <= STRONG_FILL:
        return Mask(Meaning.ADDED, value.number, True, "causal mask", triangle, made, kind=Kind.FLOAT)
    return Mask(causal=True, name="causal mask")


def kind_of(dtype: Value | None, otherwise: Kind | None = None) -> Kind | None:
    """The kind that an argument ``dtype`` asks for; ``otherwise`` where there is none."""
    if dtype is None:
        return otherwise
    if isinstance(dtype, Bound) and dtype.name == "dtype":
        return Kind.FLOAT if _holds_features(dtype.receiver) else None
    name = dtype.path.rpartition(".")[2] if isinstance(dtype, Dotted) else getattr(dtype, "name", "")
    if name in ("bool", "bool_"):
        return Kind.BOOL
    if name.startswith(("float", "bfloat")) or name in ("half", "double"):
        return Kind.FLOAT
    return Kind.WHOLE if name.startswith(("int", "uint")) or name in ("long", "short") else None


def _holds_features(value: Value) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, Unknown) and names.is_activation(value.name))


def cast(value: Value, kind: Kind | None) -> Value:
    """A mask stored another way."""
    if isinstance(value, Filled):
        return replace(value, kind=kind)
    if not isinstance(value, Mask) or (value.meaning is Meaning.ADDED and kind is Kind.FLOAT):
        return value
    return replace(value, kind=kind, flags=value.flags or kind is Kind.BOOL)


def tested(mask: Mask, *, is_true: bool) -> Mask:
    """``mask == 1`` or ``mask == 0``; of a mask that is added, True where it holds its fill or where it does not."""
    if mask.meaning is Meaning.ADDED:
        mask = replace(mask, meaning=Meaning.BLOCKS, fill=None)
    return replace(mask if is_true else mask.inverted(), flags=True, kind=Kind.BOOL)


def joined(place: Place, first: Mask, second: Mask, *, either: bool) -> Mask:
    """``first & second`` or ``first | second``: masks of one meaning keep it under the operator that fits it."""
    pair = first, second
    fits = Meaning.BLOCKS if either else Meaning.KEEPS
    meaning = fits if _fits(first, fits) and _fits(second, fits) and fits in (first.meaning, second.meaning) else None
    drawn = first if first.triangle else second
    narrow = meaning and not (first.triangle and second.triangle)
    return Mask(
        meaning,
        name=first.name,
        triangle=drawn.triangle if narrow else None,
        made=drawn.made if narrow else None,
        flags=first.flags and second.flags,
        kind=first.kind if first.kind is second.kind else None,
        padding=first.padding or second.padding,
        rank=max(first.rank, second.rank) if first.rank and second.rank else None,
        per_sample=any(mask.per_sample and mask.rank == max(first.rank or 9, second.rank or 9) for mask in pair),
        split=first.split or second.split or (place.draft(StepKind.MASK) if _loses(*pair, either=either) else None),
    )


def _loses(first: Mask, second: Mask, *, either: bool) -> bool:
    """Whether what one of two masks hides is seen after all: hidden only where both hide it, or kept where either
    does."""
    if not either and first.triangle and second.triangle:
        upper, lower = sorted((first.triangle, second.triangle), key=lambda triangle: not triangle.upper)
        return upper.upper and not lower.upper and upper.diagonal > lower.diagonal
    meaning = Meaning.KEEPS if either else Meaning.BLOCKS
    causal_and_padding = (first.triangle and second.padding) or (second.triangle and first.padding)
    return bool(causal_and_padding) and first.meaning is second.meaning is meaning


def multiplied(place: Place, first: Mask, second: Mask) -> Mask:
    """``first * second`` of two masks of 1 and 0, which is 1 where both are."""
    result = joined(place, first, second, either=False)
    return result if first.flags and second.flags else replace(result, flags=False, kind=None)


def new_axis(value: Value, at: int | None) -> Value:
    """``mask.unsqueeze(at)``."""
    if not isinstance(value, Mask) or value.rank is None or at is None:
        return replace(value, rank=None) if isinstance(value, Mask) else value
    at %= value.rank + 1
    return replace(value, rank=value.rank + 1, per_sample=value.per_sample and at > 0)


def reshaped(value: Value) -> Value:
    """A mask of which it is no longer known how many axes it has."""
    return replace(value, rank=None) if isinstance(value, Mask) else value


def rearranged(mask: Mask, source: Many[list[str]], target: Many[list[str]]) -> Value:
    """``rearrange(mask, "b t -> b 1 1 t")``."""
    kept = [name for group in target for name in group if name != "1"]
    in_order = kept == [name for group in source for name in group if name != "1"]
    same_first = bool(source and target) and source[0] == target[0]
    per_sample = same_first and (mask.per_sample or (len(source) == 2 and source[0] in (["b"], ["batch"])))
    rank = None if any("..." in group for group in target) else len(target)
    return replace(mask, rank=rank, per_sample=per_sample) if in_order else moved(mask)


def tiled(mask: Mask, place: Place, copies: Many[Value]) -> Mask:
    """``mask.repeat(heads, 1, 1)``: all samples for the first head, then all for the second."""
    first, *rest = copies or (None,)
    name = (
        first.powers[0][0].name if isinstance(first, Scalar) and len(first.powers) == 1 else getattr(first, "name", "")
    )
    by_heads = "head" in name.lower()
    if by_heads and len(rest) == 2 and all(number == Scalar(1.0) for number in rest) and not mask.causal:
        return replace(mask, tiled=place.draft(StepKind.MASK), rank=None)
    return replace(mask, rank=None)


def _fits(mask: Mask, meaning: Meaning) -> bool:
    """Whether a mask has this meaning; a shifted triangle has that of the mask that it is joined with."""
    return mask.meaning is meaning or (mask.meaning is None and mask.triangle is not None)


def moved(value: Value) -> Value:
    """A mask whose entries now stand elsewhere."""
    if isinstance(value, Unknown) and value.rows is not None:
        return replace(value, rows=None)
    if isinstance(value, Filled):
        return UNKNOWN
    if isinstance(value, Mask):
        value = replace(value, rank=None, per_sample=False)
    if not isinstance(value, Mask) or not value.triangle:
        return value
    return without_triangle(value)


def without_triangle(mask: Mask) -> Mask:
    """A mask that is no longer known to be a triangle, nor what True means in it if that was all there was to tell."""
    meaning = mask.meaning if not mask.triangle or mask.meaning is Meaning.ADDED else None
    return replace(mask, triangle=None, made=None, meaning=meaning)


def transposed(value: Value, first: int | None, second: int | None) -> Value:
    """A mask with two axes swapped: only of the last two is it known what that does."""
    if isinstance(value, Unknown):
        return moved(value)
    if not isinstance(value, Mask) or not value.triangle:
        return value if {first, second} == {-1, -2} else moved(value)
    last_two = {first, second} in ({0, 1}, {-1, -2})
    if not last_two or value.meaning is Meaning.ADDED or value.padding or value.made is None:
        return moved(value)
    return drawn(value.triangle.transposed, value.made, value.kind)


def sliced(mask: Mask, slices: Many[cst.SubscriptElement], bounds: Many[Value | None]) -> Value:
    """``mask[:, :, :t, :t]``; ``bounds`` are the values of the upper bounds. A corner of a triangle is one."""
    mask = _of_rank(mask, slices)
    axes = [(element.slice, bound) for element, bound in zip(slices, bounds, strict=True) if not _is_new(element)]
    if any(_begins_later(part) for part, _ in axes[-2:]):
        return without_triangle(mask)
    last = [bound for part, bound in axes[-2:] if isinstance(part, cst.Slice)]
    if mask.triangle and len(last) == 2 and all(isinstance(bound, Scalar) for bound in last) and last[0] != last[1]:
        return replace(mask, triangle=replace(mask.triangle, square=False))
    return mask


def _of_rank(mask: Mask, slices: Many[cst.SubscriptElement]) -> Mask:
    """The mask with the axes that ``None`` puts in, and without those that a number takes out."""
    if mask.rank is None:
        return mask
    parts = [element.slice for element in slices]
    if any(isinstance(part, cst.Index) and not _is_none(part) for part in parts):
        return replace(mask, rank=None)
    first_is_new = isinstance(parts[0], cst.Index)
    added = sum(isinstance(part, cst.Index) for part in parts)
    return replace(mask, rank=mask.rank + added, per_sample=mask.per_sample and not first_is_new)


def _is_none(part: cst.Index) -> bool:
    return isinstance(part.value, cst.Name) and part.value.value == "None"


def _is_new(element: cst.SubscriptElement) -> bool:
    part = element.slice
    return isinstance(part, cst.Index) and (
        isinstance(part.value, cst.Ellipsis) or (isinstance(part.value, cst.Name) and part.value.value == "None")
    )


def _begins_later(part: cst.BaseSlice) -> bool:
    if isinstance(part, cst.Index):
        return True
    lower = part.lower if isinstance(part, cst.Slice) else None
    return lower is not None and not (isinstance(lower, cst.Integer) and lower.value == "0")
