"""The record of one run: a straight-line program of tensor operations and every value it computed.

Values are numbered. An operation names its inputs by `Ref`, so the tape is in single-assignment form even where the
code wrote in place: each write makes a new value, and so does every view of the tensor written to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from attn_guard.findings import Location
from attn_guard.probe.places import Place, locate, raised_at

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ref:
    """Stands in an operation's arguments for the value with this number."""

    index: int


@dataclass(eq=False, slots=True)  # not frozen, which would take a recording a few times as long to make one
class Op:
    """One tensor operation. ``inputs`` and ``outputs`` are the numbers of its values, ``writes`` those it writes in
    place.

    ``module`` is the path of the innermost module that was running.
    """

    index: int
    name: str
    run: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    writes: tuple[int, ...]
    place: Place | None
    module: str
    random: bool = False

    @property
    def output(self) -> int:
        return self.outputs[0]

    @property
    def location(self) -> Location:
        return locate(self.place, self.module)


@dataclass(frozen=True, slots=True)
class FusedCall:
    """A call of `F.scaled_dot_product_attention`: the number of its first operation, and what it was asked to hide.

    ``masked`` says that it was given a mask, ``causal`` is its ``is_causal``.
    """

    first: int
    masked: bool
    causal: bool
    place: Place | None
    module: str

    @property
    def location(self) -> Location:
        return locate(self.place, self.module)


@dataclass(repr=False)
class Tape:
    """Values and operations of one run, in the order in which they were made.

    ``leaves`` names the values that no operation made: parameters ("parameter q.weight"), inputs ("input x"),
    plain attributes ("attribute mask") and constants ("constant"). ``result`` is what the module returned, with
    tensors replaced by `Ref`. ``failure`` is the exception
    that ended the run early, and ``failed_op`` the operation that raised it, if it was one. ``fused`` are the calls of
    `F.scaled_dot_product_attention`, whose operations are on the tape like all others. ``draws_elsewhere`` says that
    the run drew random numbers of Python or numpy.
    """

    values: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    producer: list[int | None] = field(default_factory=list)
    leaves: dict[int, str] = field(default_factory=dict)
    result: Any = None
    failure: Exception | None = None
    failed_op: Op | None = None
    draws_elsewhere: bool = False
    fused: list[FusedCall] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<Tape of {len(self.ops)} operations>"

    def __post_init__(self) -> None:
        self._consumers: dict[int, list[int]] = {}
        self._ancestors: dict[int, frozenset[int]] = {}
        self._descendants: dict[frozenset[int], frozenset[int]] = {}
        self._prepared: dict[tuple[int, bool], Any] = {}

    def prepared(self, op: Op, double: bool, prepare: Callable[[Op, bool], T]) -> T:
        """What a replay makes of an operation before it runs it, made once."""
        key = op.index, double
        if key not in self._prepared:
            self._prepared[key] = prepare(op, double)
        found: T = self._prepared[key]
        return found

    def maker(self, value: int) -> Op | None:
        """The operation that made a value; None for a leaf."""
        index = self.producer[value]
        return None if index is None else self.ops[index]

    def consumers(self, value: int) -> Iterator[Op]:
        """The operations that read a value, in order."""
        if not self._consumers:
            for op in self.ops:
                for read in op.inputs:
                    self._consumers.setdefault(read, []).append(op.index)
        return (self.ops[index] for index in dict.fromkeys(self._consumers.get(value, ())))

    def ancestors(self, value: int) -> frozenset[int]:
        """Every value that ``value`` was computed from, itself included."""
        if value not in self._ancestors:
            self._ancestors[value] = frozenset(self.behind(value, range(len(self.values))))
        return self._ancestors[value]

    def between(self, source: int, target: int) -> set[int]:
        """Every value on any way from one to another, both included; none where no way leads there."""
        reached = self.descendants([source])
        return self.behind(target, reached) if target in reached else set()

    def on_the_way(self, source: int, target: int) -> list[Op]:
        """The operations on any way from a value to a value computed from it, in order."""
        behind = self.between(source, target)
        makers = {op.index: op for value in behind if (op := self.maker(value)) is not None}
        return [op for _, op in sorted(makers.items()) if not behind.isdisjoint(op.inputs)]

    def behind(self, value: int, within: Container[int]) -> set[int]:
        """The values that ``value`` was computed from by way of nothing but values ``within``."""
        found, pending = {value}, [value]
        while pending:
            maker = self.maker(pending.pop())
            if maker is not None:
                fresh = [read for read in maker.inputs if read not in found and read in within]
                found.update(fresh)
                pending.extend(fresh)
        return found

    def descendants(self, values: Iterable[int]) -> frozenset[int]:
        """Every value computed from any of ``values``, themselves included."""
        sources = frozenset(values)
        if sources not in self._descendants:
            found = set(sources)
            made = [-1 if (index := self.producer[value]) is None else index for value in sources]
            for op in self.ops[min(made, default=-1) + 1 :]:
                if not found.isdisjoint(op.inputs):
                    found.update(op.outputs)
            self._descendants[sources] = frozenset(found)
        return self._descendants[sources]

    @cached_property
    def alive(self) -> frozenset[int]:
        """Every value that something returned was computed from."""
        return frozenset(value for result in self.results() for value in self.ancestors(result))

    def nearest(self, value: int, names: Collection[str]) -> Op | None:
        """The nearest operation with one of these names that a value comes from, along first operands."""
        op = self.maker(value)
        while op is not None and op.name not in names:
            op = self.maker(op.inputs[0]) if op.inputs else None
        return op

    @property
    def failed_at(self) -> Location:
        """The line of the user's code that raised ``failure``."""
        return raised_at(self.failure)

    def is_parameter(self, value: int) -> bool:
        return self.leaves.get(value, "").startswith("parameter")

    def inputs(self) -> dict[str, int]:
        """Name of each tensor that the module was called with → its value."""
        return {name.removeprefix("input "): value for value, name in self.leaves.items() if name.startswith("input")}

    def results(self) -> list[int]:
        """The tensors that the module returned, in order."""
        from torch.utils._pytree import tree_leaves

        return [leaf.index for leaf in tree_leaves(self.result) if isinstance(leaf, Ref)]


def same(left: Tensor, right: Tensor) -> Tensor:
    """Elementwise: bit-for-bit the same value, NaN included."""
    return (left == right) | ((left != left) & (right != right))


def identical(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors have the same shape and numbers; without a NaN."""
    alike = left.shape == right.shape and left.dtype == right.dtype and left.device == right.device
    return alike and torch.equal(left, right)
