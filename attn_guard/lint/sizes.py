"""Numbers, and the sizes of tensors."""

from __future__ import annotations

from attn_guard.lint import layout
from attn_guard.lint.arithmetic import as_tensor
from attn_guard.lint.place import Call, integer
from attn_guard.lint.values import UNKNOWN, Atom, Filled, Scalar, Shape, Tensor, Text, Unknown, Value


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
