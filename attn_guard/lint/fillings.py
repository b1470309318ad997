"""Tensors that are made by filling them with one number, and the triangles that are cut out of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from attn_guard.anatomy import StepKind
from attn_guard.lint import masks, shapes
from attn_guard.lint.place import Call, integer
from attn_guard.lint.record import mask_stage
from attn_guard.lint.sizes import number_of
from attn_guard.lint.values import MASKABLE, UNKNOWN, Filled, Flag, Kind, Mask, Meaning, Scalar, Tensor, Triangle, Value


def triangle(call: Call) -> Value:
    """``triu`` and ``tril`` of ones, or of the number that blocks."""
    upper = call.kwargs.get("upper") == Flag(True)
    value, diagonal = call.arg(0, "input"), call.given(1, "diagonal", "k")
    if isinstance(value, Tensor) and value.role in MASKABLE:
        return value.after(call.place.draft(StepKind.MASK, stage=mask_stage(value), fill=0.0, text="triangle"))
    shift = 0 if diagonal is None else integer(diagonal)
    return masks.triangle_of(value, call.place.draft(StepKind.MASK), upper=upper, diagonal=shift)


def triu(call: Call) -> Value:
    return triangle(replace(call, kwargs={**call.kwargs, "upper": Flag(True)}))


def filled(number: float) -> Callable[[Call], Value]:
    """``torch.ones(t, t)`` and its kin."""
    return lambda call: Filled(number, shapes.is_square(call, 0), _kind(call, Kind.FLOAT))


def filled_alike(number: float) -> Callable[[Call], Value]:
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


def square_subsequent_mask(call: Call) -> Value:
    """``nn.Transformer.generate_square_subsequent_mask(t)``: -inf after the own position, 0 up to it."""
    made = call.place.draft(StepKind.MASK)
    triangle = Triangle(upper=True, diagonal=1, square=True)
    return Mask(Meaning.ADDED, -math.inf, True, "causal mask", triangle, made, kind=Kind.FLOAT)
