"""Reads a notebook as one Python text, cell after cell, and writes a changed text back into the strings of its file.

Only the strings that hold changed lines are written anew; outputs, metadata, indentation and the end of the file stay
as they are, byte by byte. What only IPython understands (``%magic``, ``!command``, ``name?``) is read as a statement
that does nothing, so that lines keep their numbers.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from attn_guard.findings import Location


class NotebookError(ValueError):
    """The file is not a notebook: where it breaks off, and why."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class _String(NamedTuple):
    """A string of the file that holds source: its span there."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell: its number among all cells from 1, its source, and the line of the joined text that it begins at.

    ``error`` says why it could not be read: line and reason; then nothing of it is in the joined text.
    """

    number: int
    source: str
    strings: tuple[_String, ...]
    first: int
    python: str
    error: tuple[int, str] | None = None

    @property
    def lines(self) -> list[str]:
        return self.source.split("\n")


class Notebook:
    """The code cells of a notebook. Raises `NotebookError` for what is none."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._raw, document = _parsed(content)
        self.cells = tuple(_cells(self._raw)) if _is_python(document) else ()

    @cached_property
    def text(self) -> str:
        """The code of all cells, in which definitions of earlier cells are known to later ones."""
        return "".join(f"{cell.python}\n" for cell in self.cells)

    def place(self, joined: Location) -> Location:
        """A place in the joined text as a place in its cell."""
        cell = self._cell_at(joined.line)
        shift = cell.first - 1
        end = max(joined.end_line - shift, 0)
        return replace(joined, line=joined.line - shift, end_line=end, cell=cell.number)

    def joined(self, place: Location) -> Location:
        """A place in a cell as a place in the joined text."""
        cell = next((cell for cell in self.cells if cell.number == place.cell), None)
        if cell is None:
            return place
        shift = cell.first - 1
        end = place.end_line + shift if place.end_line else 0
        return replace(place, line=place.line + shift, end_line=end, cell=0)

    def _cell_at(self, line: int) -> Cell:
        return self.cells[max(bisect_right([cell.first for cell in self.cells], line) - 1, 0)]

    def written(self, text: str) -> bytes:
        """The content of the file with another joined text. Raises `ValueError` where lines were added or removed."""
        before, after = self.text.split("\n"), text.split("\n")
        if len(before) != len(after):
            raise ValueError("lines were added or removed")
        changed = {
            number: after[number - 1] for number in range(1, len(after)) if before[number - 1] != after[number - 1]
        }
        raw = self._raw
        for cell in reversed(self.cells):
            mine = {number - cell.first: line for number, line in changed.items() if self._cell_at(number) is cell}
            for string, literal in reversed(_rewritten(self._raw, cell, mine)):
                raw = raw[: string.start] + literal + raw[string.end :]
        mark = b"\xef\xbb\xbf" if self._content.startswith(b"\xef\xbb\xbf") else b""
        return mark + raw.encode()

    def lines_of(self, number: int) -> list[str]:
        """The lines of a cell."""
        return next((cell.lines for cell in self.cells if cell.number == number), [])

    def line_in_file(self, number: int, line: int) -> int:
        """The line of the file that holds a line of a cell."""
        cell = next((cell for cell in self.cells if cell.number == number), None)
        if cell is None:
            return 1
        seen = 0
        for string in cell.strings:
            seen += str(json.loads(self._raw[string.start : string.end])).count("\n")
            if seen >= line:
                break
        return self._raw.count("\n", 0, string.start) + 1


def _parsed(content: bytes) -> tuple[str, Any]:
    try:
        raw = content.decode("utf-8-sig")
        document = json.loads(raw)
    except json.JSONDecodeError as error:
        raise NotebookError(f"not valid JSON: {error.msg}", error.lineno, error.colno) from None
    except UnicodeDecodeError:
        raise NotebookError("not valid UTF-8") from None
    except RecursionError:
        raise NotebookError("nested too deeply") from None
    if not isinstance(document, dict):
        raise NotebookError("not a notebook: expected an object with cells")
    return raw, document


def _is_python(document: dict[str, Any]) -> bool:
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    for part, key in (("language_info", "name"), ("kernelspec", "language")):
        about = metadata.get(part)
        language = about.get(key) if isinstance(about, dict) else None
        if isinstance(language, str):
            return "python" in language.lower()
    return True


_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


def _strings(raw: str) -> Iterator[tuple[tuple[str | int, ...], _String]]:
    """Every string that is a value in a JSON text: the keys and indices that lead to it, and its span."""
    path: list[str | int] = []
    is_key = False
    for found in _TOKEN.finditer(raw):
        token = found[0]
        if token in "{[":
            path.append("" if token == "{" else 0)
            is_key = token == "{"
        elif token in "}]":
            path.pop()
        elif token == ",":
            last = path[-1]
            is_key = isinstance(last, str)
            path[-1] = last if isinstance(last, str) else last + 1
        elif token == ":":
            is_key = False
        elif token[0] == '"' and is_key:
            path[-1] = json.loads(token)
        elif token[0] == '"':
            yield tuple(path), _String(found.start(), found.end())


def _cells(raw: str) -> Iterator[Cell]:
    kinds: dict[int, str] = {}
    strings: dict[int, list[_String]] = {}
    for path, string in _strings(raw):
        # format 3 has its cells in worksheets, and their source under "input"
        inside = path[path.index("cells") + 1 :] if path[0] in ("cells", "worksheets") and "cells" in path else ()
        if len(inside) < 2 or not isinstance(inside[0], int):
            continue
        if inside[1] == "cell_type":
            kinds[inside[0]] = json.loads(raw[string.start : string.end])
        elif inside[1] in ("source", "input"):
            strings.setdefault(inside[0], []).append(string)
    first = 1
    for index, parts in strings.items():
        if kinds.get(index) == "code":
            source = "".join(json.loads(raw[part.start : part.end]) for part in parts)
            python, error = _python(source)
            yield Cell(index + 1, source, tuple(parts), first, python, error)
            first += source.count("\n") + 1


def _python(source: str) -> tuple[str, tuple[int, str] | None]:
    """What of a cell is Python, line by line, and why nothing of it is where that cannot be read."""
    text = _without_magics(source) if re.search(r"[%!?]", source) else source
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        # other line ends than those of the cell count for the parser
        return "\n" * source.count("\n"), (min(error.lineno or 1, source.count("\n") + 1), error.msg)
    except (ValueError, RecursionError, MemoryError) as error:
        return "\n" * source.count("\n"), (1, str(error) or "nested too deeply")
    return text, None


_PYTHON_CELLS = ("capture", "prun", "time", "timeit")  # what follows these is Python; after any other, it is not
_MAGIC = re.compile(r"(\s*)(?:[%!]|\?{1,2}[\w.*%]|[\w.*%]+\?{1,2}\s*$)")
_ASSIGNED = re.compile(r"(\s*[\w.,\[\] *]+=\s*)[%!].*")
_QUOTED = re.compile(r'"""|\'\'\'|"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|#.*|[()\[\]{}]')


def _without_magics(source: str) -> str:
    lines = source.split("\n")
    start = next((index for index, line in enumerate(lines) if line.strip()), 0)
    magic = re.match(r"\s*%%(\w*)", lines[start])
    if magic and magic[1] not in _PYTHON_CELLS:
        return "\n" * (len(lines) - 1)
    if magic:
        lines[start] = ""
    state = _Statement()
    is_command = False  # a command that a backslash continues
    for index, line in enumerate(lines):
        found = _MAGIC.match(line) if state.is_new else None
        assigned = _ASSIGNED.fullmatch(line) if state.is_new else None
        if is_command or found or assigned:
            lines[index] = (
                "" if is_command else f"{found[1]}pass" if found else f"{assigned[1]}None" if assigned else ""
            )
            is_command = line.rstrip().endswith("\\")
        else:
            state.read(line)
    return "\n".join(lines)


class _Statement:
    """Knows whether the next line begins a statement, or goes on with a string or in brackets."""

    def __init__(self) -> None:
        self._quote = ""
        self._depth = 0
        self._continued = False

    @property
    def is_new(self) -> bool:
        return not (self._quote or self._depth or self._continued)

    def read(self, line: str) -> None:
        at = 0
        while at < len(line):
            if self._quote:
                at = line.find(self._quote, at) + 3
                if at < 3:
                    return
                self._quote = ""
            found = _QUOTED.search(line, at)
            if found is None:
                break
            at = found.end()
            if found[0] in ('"""', "'''"):
                self._quote = found[0]
            elif found[0] in "([{":
                self._depth += 1
            elif found[0] in ")]}":
                self._depth = max(self._depth - 1, 0)
        self._continued = not self._quote and line.endswith("\\")


def _rewritten(raw: str, cell: Cell, changed: dict[int, str]) -> list[tuple[_String, str]]:
    """The strings of a cell that hold changed lines (by index), as they are to be written."""
    found = []
    line = 0
    for string in cell.strings:
        literal = raw[string.start : string.end]
        value: str = json.loads(literal)
        parts = value.split("\n")
        new = [changed.get(line + index, part) for index, part in enumerate(parts)]
        if parts[-1] == "" and len(parts) > 1:
            new[-1] = ""  # the line that begins here is in the next string
        if new != parts:
            plain = json.dumps(value, ensure_ascii=False)
            found.append((string, json.dumps("\n".join(new), ensure_ascii=literal != plain)))
        line += len(parts) - 1
    return found
