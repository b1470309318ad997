"""What operations do to masks, and what is wrong with a mask where it is used."""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import replace

import libcst as cst

from attn_guard.anatomy import StepKind
from attn_guard.lint import names
from attn_guard.lint.place import Place
from attn_guard.lint.record import Event, Trouble
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
    )


def _fits(mask: Mask, meaning: Meaning) -> bool:
    """Whether a mask has this meaning; a shifted triangle has that of the mask that it is joined with."""
    return mask.meaning is meaning or (mask.meaning is None and mask.triangle is not None)


def moved(value: Value) -> Value:
    """A mask whose entries now stand elsewhere."""
    if isinstance(value, Filled):
        return UNKNOWN
    if not isinstance(value, Mask) or not value.triangle:
        return value
    return replace(value, triangle=None, made=None, meaning=value.meaning if value.meaning is Meaning.ADDED else None)


def transposed(value: Value, first: int | None, second: int | None) -> Value:
    """A mask with two axes swapped: only of the last two is it known what that does."""
    if not isinstance(value, Mask) or not value.triangle:
        return value
    last_two = {first, second} in ({0, 1}, {-1, -2})
    if not last_two or value.meaning is Meaning.ADDED or value.padding or value.made is None:
        return moved(value)
    return drawn(value.triangle.transposed, value.made, value.kind)


def sliced(mask: Mask, slices: Many[cst.SubscriptElement], bounds: Many[Value | None]) -> Value:
    """``mask[:, :, :t, :t]``; ``bounds`` are the values of the upper bounds. A corner of a triangle is one."""
    axes = [(element.slice, bound) for element, bound in zip(slices, bounds, strict=True) if not _is_new(element)]
    if any(_begins_later(part) for part, _ in axes[-2:]):
        return moved(mask)
    last = [bound for part, bound in axes[-2:] if isinstance(part, cst.Slice)]
    if mask.triangle and len(last) == 2 and all(isinstance(bound, Scalar) for bound in last) and last[0] != last[1]:
        return replace(mask, triangle=replace(mask.triangle, square=False))
    return mask


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


def blocks(place: Place, mask: Mask | None, scores: Tensor | None = None) -> None:
    """The mask hides the keys where it is True, or holds its fill."""
    if mask is not None and mask.triangle:
        _judge(place, mask, mask.triangle.complement, scores)


def keeps(place: Place, mask: Mask | None, scores: Tensor | None = None) -> None:
    """The mask shows the keys where it is True."""
    if mask is not None and mask.triangle:
        _judge(place, mask, mask.triangle, scores)


def _judge(place: Place, mask: Mask, visible: Triangle, scores: Tensor | None) -> None:
    if visible.upper:
        return
    if visible.square is False:
        if visible.diagonal == 0 and scores is not None:
            starts_at_top_left(place, scores)
        return
    used = place.draft(StepKind.MASK)
    made = mask.made or used
    trouble = {1: Trouble.SEES_NEXT, -1: Trouble.HIDES_OWN}.get(visible.diagonal)
    if trouble:
        related = None if made.node is used.node else used
        place.record.note(trouble, Event(made, related=related, label="used here"))


def starts_at_top_left(place: Place, scores: Tensor) -> None:
    """A triangle that starts at the first key, where a cache is sure to be in front of the keys, or may be."""
    grown = scores.grown
    if grown is not None and place.record.branches <= grown.branches:
        event = Event(place.draft(StepKind.MASK), related=grown.draft, label="the keys of the cache come first here")
        place.record.note(Trouble.MISALIGNED, event)


def added(place: Place, mask: Mask | None, scores: Tensor | None = None) -> None:
    """The mask is added to the scores."""
    if mask is None or mask.meaning is Meaning.ADDED:
        blocks(place, mask, scores)
    elif mask.flags:
        place.record.note(Trouble.ADDED_FLAGS, Event(place.draft(StepKind.MASK), mask.name))
