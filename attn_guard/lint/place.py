"""A place in the source that an operation stands at, from which it makes its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attn_guard.lint.values import UNKNOWN, Draft, Flag, Nothing, Scalar, Value

if TYPE_CHECKING:
    from attn_guard.anatomy import StepKind
    from attn_guard.lint import nodes as cst
    from attn_guard.lint.record import Record
    from attn_guard.lint.regions import Region


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operation stands, and the record that its walk writes."""

    node: cst.CSTNode
    region: Region
    record: Record

    def draft(self, kind: StepKind, **facts: Any) -> Draft:
        return Draft(kind, self.node, self.region, **facts)


@dataclass(frozen=True, slots=True)
class Call:
    """A call with its values. For a method, the receiver is the first of ``args``."""

    place: Place
    args: tuple[Value, ...]
    kwargs: Mapping[str, Value] = field(default_factory=dict)
    spread: bool = False  # holds *args or **kwargs, so that absences prove nothing
    firm: int | None = None  # how many arguments stand before the first *args, where there is one

    def arg(self, index: int, *names: str) -> Value:
        """An argument by position or by one of its names; `UNKNOWN` where it is not given."""
        found = self.given(index, *names)
        return UNKNOWN if found is None else found

    def given(self, index: int, *names: str) -> Value | None:
        for name in names:
            if name in self.kwargs:
                return self.kwargs[name]
        return self.args[index] if index < (len(self.args) if self.firm is None else self.firm) else None

    def integer(self, index: int, *names: str) -> int | None:
        return integer(self.arg(index, *names))


def integer(value: Value) -> int | None:
    """The value of a whole number that stands in the source."""
    if isinstance(value, Scalar) and value.is_number and value.number.is_integer():
        return int(value.number)
    return None


def is_absent(value: Value | None) -> bool:
    """Whether an argument is not given, or given as None or False."""
    return value is None or isinstance(value, Nothing) or value == Flag(False)
