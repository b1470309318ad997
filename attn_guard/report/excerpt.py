"""A piece of source with the places in it underlined and labelled."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attn_guard.lines import lines_around

if TYPE_CHECKING:
    from attn_guard.findings import Location
    from attn_guard.report.style import Style

CONTEXT = 1  # lines shown around the blamed span
LONGEST = 5  # lines of one span that are underlined
NEARBY = 10  # places of one file further apart than this get an excerpt each


@dataclass(frozen=True, slots=True)
class Mark:
    """A place to underline. The primary one is what the finding blames."""

    location: Location
    label: str = ""
    primary: bool = False


def shown_path(path: str) -> str:
    """A path as people would write it: from the current folder where it lies inside."""
    try:
        return Path(path).relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path


def shown_place(place: Location) -> str:
    if not place.line:  # known by name only
        return place.path
    return shown_path(place.path) + str(place).removeprefix(place.path)


def excerpts(marks: Iterable[Mark], style: Style) -> Iterator[str]:
    """The lines of the excerpts, those of the primary place first. Files that cannot be read give their place only."""
    marks = sorted(
        marks, key=lambda mark: (not mark.primary, mark.location.path, mark.location.cell, mark.location.line)
    )
    chunks = list(_chunks(marks))
    gutter = max(len(str(_end(mark.location) + CONTEXT)) for mark in marks)
    for position, chunk in enumerate(chunks):
        place = next((mark for mark in chunk if mark.primary), chunk[0]).location
        where = shown_place(place) + (f" in {place.module}" if place.module and position == 0 else "")
        arrow = "-->" if position == 0 else ":::"
        yield f"{' ' * gutter}{style.paint(arrow, 'blue')} {where}"
        yield from _source(chunk, gutter, style)


def _chunks(marks: Iterable[Mark]) -> Iterator[list[Mark]]:
    """Marks that fit into one excerpt: of one file, and near each other."""
    chunk: list[Mark] = []
    for mark in marks:
        if chunk and not _near(chunk[0].location, mark.location):
            yield chunk
            chunk = []
        chunk.append(mark)
    if chunk:
        yield chunk


def _near(one: Location, other: Location) -> bool:
    same = shown_path(one.path) == shown_path(other.path) and one.cell == other.cell
    return same and abs(one.line - other.line) <= NEARBY


def _source(marks: list[Mark], gutter: int, style: Style) -> Iterator[str]:
    lines = lines_around(marks[0].location)
    wanted = _wanted(marks, lines)
    if not wanted:
        yield from (f"{' ' * gutter} {style.paint('=', 'blue')} {mark.label}" for mark in marks if mark.label)
        return
    bar = style.paint("|", "blue")
    empty = f"{' ' * gutter} {bar}"
    yield empty
    last = wanted[0] - 1
    for number in wanted:
        if number != last + 1:
            yield style.paint("...", "blue")
        text = lines[number - 1].rstrip()
        yield f"{style.paint(f'{number:>{gutter}}', 'blue')} {bar} {text.expandtabs(4)}".rstrip()
        for mark in marks:
            if mark.location.line <= number <= _end(mark.location):
                yield f"{empty} {_underline(mark, number, text, style)}"
        last = number
    yield empty


def _wanted(marks: list[Mark], lines: list[str]) -> list[int]:
    """The line numbers to show: every marked line, and the context of the primary one."""
    wanted: set[int] = set()
    for mark in marks:
        around = CONTEXT if mark.primary else 0
        wanted.update(range(mark.location.line - around, _end(mark.location) + around + 1))
    numbers = sorted(number for number in wanted if 1 <= number <= len(lines))
    marked = {mark.location.line for mark in marks}
    while numbers and numbers[0] not in marked and not lines[numbers[0] - 1].strip():
        numbers.pop(0)
    while numbers and numbers[-1] not in marked and not lines[numbers[-1] - 1].strip():
        numbers.pop()
    return numbers if marked & set(numbers) else []


def _end(location: Location) -> int:
    return min(max(location.line, location.end_line), location.line + LONGEST - 1)


def _underline(mark: Mark, number: int, text: str, style: Style) -> str:
    """The line under a source line. A span without columns covers the whole line."""
    place = mark.location
    first = place.column if number == place.line and place.column else len(text) - len(text.lstrip()) + 1
    whole = number < place.end_line or not place.end_column
    last = len(text) if whole else min(place.end_column - 1, len(text))
    before, span = _width(text[: first - 1]), _width(text[: max(last, first)]) - _width(text[: first - 1])
    line = ("^" if mark.primary else "-") * max(span, 1)
    label = f" {mark.label}" if mark.label and number == _end(place) else ""
    return " " * before + style.paint(line + label, "bold", "red" if mark.primary else "blue")


def _width(text: str) -> int:
    """Terminal cells that a text takes up; wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text.expandtabs(4))
