"""Turns a report into plain values and back. The path of its file is left out, so that the same content has the same
record wherever it lies."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from attn_guard.findings import Location, Report

_PLAIN = Report(files=1)


def record_of(report: Report, path: str) -> Any:
    """JSON values for a report on one file; None for one that has nothing to say."""
    return None if report == _PLAIN else _plain(report, path)


def report_of(record: Any, path: str) -> Report:
    """The report that a record was made of, on the file at ``path``. Raises TypeError, ValueError, KeyError or
    AttributeError for anything else."""
    return _PLAIN if record is None else _reader(Report)(record, path)


def _plain(value: Any, path: str) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Location) and value.path == path:
        return ["", *(getattr(value, field.name) for field in fields(value)[1:])]
    if is_dataclass(value):
        return [_plain(getattr(value, field.name), path) for field in fields(value)]
    if isinstance(value, tuple):
        return [_plain(item, path) for item in value]
    if isinstance(value, Mapping):
        return [[_plain(key, path), _plain(item, path)] for key, item in value.items()]
    return value


Reader = Callable[[Any, str], Any]


@cache
def _reader(kind: Any) -> Reader:
    """How a value of a type is made again from plain values."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Location:
        return lambda value, path: Location(value[0] or path, *value[1:])
    if isinstance(kind, type) and is_dataclass(kind):
        return _record_reader(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda value, _: kind(value)
    if origin in (types.UnionType, typing.Union):
        (rest,) = (_reader(part) for part in inner if part is not type(None))
        return lambda value, path: None if value is None else rest(value, path)
    if origin is tuple and inner[-1] is Ellipsis:
        item = _reader(inner[0])
        return lambda value, path: tuple(item(part, path) for part in value)
    if origin is tuple:
        items = [_reader(part) for part in inner]
        return lambda value, path: tuple(read(part, path) for read, part in zip(items, value, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        key, item = map(_reader, inner)
        return lambda value, path: {key(name, path): item(part, path) for name, part in value}
    return lambda value, _: value


def _record_reader(kind: type) -> Reader:
    readers: list[Reader] = []

    def read(value: Any, path: str) -> Any:
        if not readers:  # a type may hold itself, so its fields are looked at late
            readers.extend(map(_reader, _field_types(kind)))
        return kind(*(field(part, path) for field, part in zip(readers, value, strict=True)))

    return read


def _field_types(kind: type) -> list[Any]:
    from attn_guard.anatomy import Site

    hints = typing.get_type_hints(kind, localns={"Site": Site})
    return [hints[field.name] for field in fields(kind)]
