"""The names of one function while it is walked, and how assignments change them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attn_guard.anatomy import Size
from attn_guard.lint import arithmetic, expressions, modes, names, ops, rows, sizes
from attn_guard.lint import nodes as cst
from attn_guard.lint.place import Call, Place
from attn_guard.lint.values import (
    MASKABLE,
    UNKNOWN,
    Atom,
    AttentionMap,
    Draft,
    Filled,
    Instance,
    Mask,
    Role,
    Scalar,
    Sequence,
    Shape,
    Tensor,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from attn_guard.lint.regions import Region
    from attn_guard.lint.trace import Walk


@dataclass
class Frame:
    """One function while it is walked: its names, and what it has returned so far.

    ``borrowed`` are the parameters that are still the caller's own objects, each with its place among them; ``changed``
    are those of them that were changed in place. ``ones`` are sizes that it asserts to be 1. ``outer`` is the frame of
    its caller.
    """

    walk: Walk
    region: Region
    names: dict[str, Value]
    instance: Instance | None = None
    scope: Mapping[str, Value] = field(default_factory=dict)
    outer: Frame | None = None
    returned: list[Value] = field(default_factory=list)
    ended: bool = False
    mode_tests: int = 0  # tests of training mode that returned early
    masked: dict[str, tuple[Draft, Draft | None]] = field(default_factory=dict)
    borrowed: dict[str, int] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    ones: list[Scalar] = field(default_factory=list)

    def place(self, node: cst.CSTNode) -> Place:
        return Place(node, self.region, self.walk.record)

    def lookup(self, name: str) -> Value:
        if name in self.names:
            return self.names[name]
        return self.scope[name] if name in self.scope else self.walk.global_value(name)

    def assign(self, target: cst.BaseExpression, value: Value) -> None:
        """``target = value``; unpacks, and learns the axes of a tensor whose shape is unpacked."""
        if isinstance(target, cst.Name):
            self.names[target.value] = self._called(target.value, value)
            self.borrowed.pop(target.value, None)
        elif isinstance(target, cst.Tuple | cst.List):
            self._unpack(target, value)
        elif isinstance(target, cst.Attribute):
            owner = expressions.evaluate(self, target.value)
            if isinstance(owner, Instance):
                owner.attributes[target.attr.value] = (
                    self._called(target.attr.value, value) if isinstance(value, Scalar) else value
                )
        elif isinstance(target, cst.Subscript):
            self._assign_item(target, value)

    def _unpack(self, target: cst.Tuple | cst.List, value: Value) -> None:
        elements = target.elements
        starred = any(isinstance(element, cst.StarredElement) for element in elements)
        if isinstance(value, Shape):
            values = _unpacked_shape(value, elements, starred)
        elif isinstance(value, Sequence) and value.items and value.endless:
            values = _unpacked_endless(value.items, len(elements))
        elif isinstance(value, Sequence) and len(value.items) == len(elements) and not starred:
            values = list(value.items)
        elif isinstance(value, Tensor) and value.role is Role.CONTEXT and value.axes and len(elements) == 2:
            values = [value, UNKNOWN]  # a context comes with its weights
        elif isinstance(value, Tensor):
            values = [expressions.items_of(value)[0]] * len(elements)
        else:
            values = [UNKNOWN] * len(elements)
        for element, part in zip(elements, values, strict=True):
            if isinstance(element, cst.StarredElement):
                self.assign(element.value, Sequence((UNKNOWN,), endless=True))
            else:
                if isinstance(part, AttentionMap):
                    modes.note_unread(part, element.value, self.region, self.walk.record)
                self.assign(element.value, part)

    def _called(self, name: str, value: Value) -> Value:
        """A value under its new name: a size without a name of its own takes it, and so does an unknown."""
        if isinstance(value, Unknown) and not value.name:
            return replace(value, name=name)
        if isinstance(value, Scalar) and name != "_" and len(value.powers) == 1:
            atom, power = value.powers[0]
            if ".shape[" in atom.name and power == 1.0 and value.number == 1.0:
                # H in a shape is as often a height
                size = names.size_called(name) if len(name.strip("_")) > 1 else None
                if size is None and atom.name.endswith("[-1]"):
                    return value  # known best by whose last axis it is
                return Scalar(powers=((Atom(self._own(name), size, atom.axis), 1.0),))
        is_told_anew = names.is_query_or_key(name) or (names.is_position_bias(name) and "bias" in name)
        if isinstance(value, Tensor) and (is_told_anew or not value.name):
            return value.changed(name=name)
        return value

    def _own(self, name: str) -> str:
        """A name for a size of an unknown tensor, which is not that of another size under the same name of a caller."""
        frame = self.outer
        while frame is not None:
            if isinstance(frame.names.get(name), Scalar):
                return f"{name} of {self.region.name}"
            frame = frame.outer
        return name

    def learn_axes(self, node: cst.BaseExpression, target: cst.BaseExpression) -> None:
        """``b, t, d = x.shape`` says of x that its axes are b, t and d, ``d = q.shape[-1]`` that its last axis is d."""
        if isinstance(target, cst.Name):
            self._learn_width(node, target.value)
            return
        name = _shape_owner(node)
        if name is None or not isinstance(target, cst.Tuple):
            return
        known = arithmetic.as_tensor(self.lookup(name))
        if known is None or known.axes or any(isinstance(e, cst.StarredElement) for e in target.elements):
            return
        axes = []
        for index, element in enumerate(target.elements):
            value = self.names.get(element.value.value) if isinstance(element.value, cst.Name) else None
            anonymous = Scalar(powers=((Atom(f"{name}.shape[{index}]", axis=index), 1.0),))
            named = value if isinstance(value, Scalar) and _is_name(element.value) else anonymous
            axes.append(named)
        if known.last:
            axes[-1] = known.last
        self.names[name] = known.changed(axes=tuple(axes), last=axes[-1])

    def _learn_width(self, node: cst.BaseExpression, size: str) -> None:
        """A query or key is as wide as the size that is read from it, which may go by the name of any width."""
        name = _owner_of_width(node)
        value = self.names.get(size)
        known = arithmetic.as_tensor(self.lookup(name)) if name and names.is_query_or_key(name) else None
        if name and known and not known.last and isinstance(value, Scalar):
            self.names[name] = known.changed(last=value)

    def _assign_item(self, target: cst.Subscript, value: Value) -> None:
        """``scores[mask] = fill``."""
        only = target.slice[0].slice if len(target.slice) == 1 else None
        index = expressions.evaluate(self, only.value) if isinstance(only, cst.Index) else UNKNOWN
        owner = expressions.evaluate(self, target.value)
        fill = sizes.number_of(value)
        if isinstance(owner, Tensor) and owner.role in MASKABLE and len(target.slice) > 1 and not _hides(fill):
            self.rebind(target.value, owner.changed(opaque=True))  # cells that are given a score, and not hidden
        elif isinstance(owner, Tensor) and rows.are_filled(owner, index, fill):
            self.rebind(target.value, rows.filled(self.place(target), owner, fill))
        elif isinstance(owner, Tensor) and owner.role in MASKABLE:
            mask = arithmetic.as_mask(index)
            self.rebind(target.value, ops.fill_where(Call(self.place(target), (owner,)), owner, mask, fill))
        elif isinstance(owner, Mask | Filled) and fill is not None and isinstance(index, Mask):
            self.rebind(target.value, ops.fill_where(Call(self.place(target), (owner,)), owner, index, fill))
        elif isinstance(owner, Mask):
            self.rebind(target.value, Mask(name=owner.name))
        elif isinstance(owner, Tensor | Filled):
            self.rebind(target.value, UNKNOWN)

    def rebind(self, node: cst.BaseExpression, value: Value) -> None:
        """What an in-place operation leaves in the name it works on."""
        while isinstance(node, cst.Attribute) and node.attr.value == "data":
            node = node.value
        if isinstance(node, cst.Name) and node.value in self.borrowed:
            self.names[node.value] = value
            self.changed.add(node.value)
        elif isinstance(node, cst.Name | cst.Attribute):
            self.assign(node, value)


def _hides(fill: float | None) -> bool:
    return fill is not None and fill < 0


def _is_name(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value != "_"


def _shape_owner(node: cst.BaseExpression) -> str | None:
    """The name x in ``x.shape`` or ``x.size()``."""
    if isinstance(node, cst.Call) and not node.args:
        node = node.func
    if isinstance(node, cst.Attribute) and node.attr.value in ("shape", "size") and isinstance(node.value, cst.Name):
        return node.value.value
    return None


def _owner_of_width(node: cst.BaseExpression) -> str | None:
    """The name x in ``x.shape[-1]`` or ``x.size(-1)``."""
    if isinstance(node, cst.Subscript) and len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
        owner, at = node.value, node.slice[0].slice.value
    elif isinstance(node, cst.Call) and len(node.args) == 1:
        owner, at = node.func, node.args[0].value
    else:
        return None
    is_last = (
        isinstance(at, cst.UnaryOperation) and isinstance(at.operator, cst.Minus) and cst.code(at.expression) == "1"
    )
    return _shape_owner(owner) if is_last else None


def _unpacked_endless(items: tuple[Value, ...], count: int) -> list[Value]:
    """Items of which one stands for any number: what follows an unknown one is known from the end."""
    if UNKNOWN not in items:
        return [items[min(index, len(items) - 1)] for index in range(count)]
    tail = items[len(items) - items[::-1].index(UNKNOWN) :]
    return [*[UNKNOWN] * (count - len(tail)), *tail[-count:]]


def _unpacked_shape(value: Shape, elements: Many[cst.BaseElement], starred: bool) -> list[Value]:
    count = len(elements)
    if starred:
        return [UNKNOWN] * count
    known = value.tensor.axes if isinstance(value.tensor, Tensor) else None
    axes = [sizes.axis_size(value.tensor, index) for index in range(count)]
    if known is None and isinstance(value.tensor, Tensor) and value.tensor.last:
        axes[-1] = value.tensor.last
    if known is None and count >= 3 and isinstance(elements[-1].value, cst.Name):
        axes[-1] = axes[-1] if _has_size(axes[-1]) else _feature_size(elements[-1].value.value, axes[-1])
    return axes


def _has_size(value: Value) -> bool:
    return isinstance(value, Scalar) and value.size is not None


def _feature_size(name: str, value: Value) -> Value:
    return Scalar(powers=((Atom(name, Size.D_MODEL), 1.0),)) if names.is_feature_axis(name) else value
