"""Cuts a source file into regions: its functions, and its classes method by method.

A region is parsed only when somebody asks for its tree, and the positions of its nodes are computed only when a
location in it is asked for. The cut itself is textual: one search that knows strings, comments, brackets and
indentation, and costs a hundredth of a parse.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from attn_guard.findings import Location
from attn_guard.lint import nodes as cst
from attn_guard.lint.parsing import parse

if TYPE_CHECKING:
    from attn_guard.lint.written import Written

# A pattern that begins with a plain character is searched several times faster than one that begins with "^", so a line
# break is put in front of the text.
_LANDMARK = re.compile(
    r"\n(?:(?P<indent>[ \t]*+)(?=[@acd])"
    r"(?:(?P<decorator>@)|(?:async[ \t]+)?(?P<kind>def|class)[ \t]+(?P<name>\w+)[ \t]*[(:\[])|(?P<statement>(?=\w)))"
)
_BASES = re.compile(r"class[ \t]+\w+[^(:]*\(([^)]*)\)")
_ASSIGNED = re.compile(r"\n[ \t]++(\w+)[ \t]*(?::[^=\n]+)?=[ \t]*([^=\s#][^\n#]*)")
_CONSTANT = re.compile(r"\n(\w+)[ \t]*(?::[^=\n]+)?=[ \t]*([^=\s][^\n#]*)")
_SET = re.compile(r"self\.(\w+)\b[^=\n]*=[^=]")
_CHANGED = re.compile(r"self\.(\w+)\s*(?::[^=\n]+)?(?:[-+*/]|//)?=[^=]")
_BLOCK = "if 1:\n"  # an indented region is parsed as the body of such a block, so its text need not be changed


@lru_cache(maxsize=256)
def _parsed(text: str, copy: int) -> cst.Module | None:
    """A tree for a text. Libraries repeat whole functions from file to file, so the latest trees are kept."""
    try:
        return parse(text)
    except RecursionError:  # an expression of hundreds of terms; no attention is written like that
        return cst.Module(None, [])


@dataclass(eq=False)
class Region:
    """A function or method: its text, and the tree and locations that are made of it on demand.

    ``copy`` counts the regions of the same file with the same text before it: each has nodes of its own.
    """

    path: str
    name: str
    line: int
    text: str
    owner: Class | None = None
    copy: int = 0

    @property
    def qualified_name(self) -> str:
        return f"{self.owner.name}.{self.name}" if self.owner else self.name

    @property
    def is_indented(self) -> bool:
        return self.text[:1] in " \t"

    @property
    def parsed(self) -> str:
        """The text that is parsed for it."""
        return _BLOCK + self.text if self.is_indented else self.text

    @cached_property
    def _module(self) -> cst.Module | None:
        return _parsed(self.parsed, self.copy)

    @cached_property
    def tree(self) -> cst.FunctionDef | None:
        """The function's node, or None if its text does not parse, or is too much to read."""
        body: Iterable[cst.CSTNode] = self._module.body if self._module else ()
        block = next(iter(body), None)
        if self.is_indented and isinstance(block, cst.If):
            body = block.body.body
        return next((node for node in body if isinstance(node, cst.FunctionDef)), None)

    @property
    def is_parsed(self) -> bool:
        return "tree" in self.__dict__

    @property
    def is_unreadable(self) -> bool:
        return self.is_parsed and self._module is None

    @property
    def shift(self) -> int:
        """How many lines of the file stand before what is parsed."""
        return self.line - (2 if self.is_indented else 1)

    def location(self, node: cst.CSTNode) -> Location:
        """Where a node of this region's tree is in the file."""
        place = node.at
        if place is None:
            return Location(self.path, self.line)
        return Location(
            self.path,
            place.lineno + self.shift,
            self._column(place.lineno, place.col_offset),
            place.end_lineno + self.shift,
            self._column(place.end_lineno, place.end_col_offset),
        )

    def _column(self, line: int, offset: int) -> int:
        """The column, from 1, of what stands behind so many bytes of a line of what is parsed."""
        if self.text.isascii():
            return offset + 1
        return len(self._lines[line - 1].encode()[:offset].decode(errors="replace")) + 1

    @cached_property
    def _lines(self) -> list[str]:
        return self.parsed.split("\n")

    @cached_property
    def written(self) -> Written:
        """The same with its brackets, spaces and comments."""
        from attn_guard.lint.written import Written  # late: it brings libcst

        return Written(self)


@dataclass(eq=False)
class Class:
    """A class of the file: its head (decorators, name, bases), its methods, and the text of all of it."""

    name: str
    text: str
    methods: dict[str, Region] = field(default_factory=dict)

    @cached_property
    def head(self) -> str:
        """Decorators, name and bases."""
        found = re.search(r"^[ \t]*class\b[^:]*?(?:\(.*?\))?[ \t]*:", self.text, re.MULTILINE | re.DOTALL)
        return self.text[: found.end()] if found else ""

    @cached_property
    def bases(self) -> tuple[str, ...]:
        found = _BASES.search(self.head)
        return tuple(base.strip() for base in found[1].split(",") if "=" not in base) if found else ()

    @cached_property
    def constants(self) -> dict[str, str]:
        """Text of the values that are assigned to plain names in the class, the first for each."""
        return dict(reversed(_ASSIGNED.findall(self.text)))

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Names of the attributes that its methods set."""
        return frozenset(_SET.findall(self.text))

    @cached_property
    def changed_later(self) -> frozenset[str]:
        """Names of the attributes that methods other than the constructor set."""
        rest = (method.text for name, method in self.methods.items() if name != "__init__")
        return frozenset(name for text in rest for name in _CHANGED.findall(text))


@dataclass(eq=False)
class Source:
    """A file cut into regions.

    classes: the last of each name, which is what the name means in the end. redefined: those before it, as in a
    notebook that writes a class anew from cell to cell.
    """

    path: str
    text: str
    functions: dict[str, Region] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    redefined: list[Class] = field(default_factory=list)
    texts: Counter[str] = field(default_factory=Counter)
    _families: dict[Class, tuple[Class, ...]] = field(default_factory=dict)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(found.end() for found in re.finditer(r"\n", self.text))]

    def line_at(self, offset: int) -> int:
        """Number of the line that holds a character, from 1."""
        return bisect_right(self._line_starts, offset)

    def between(self, place: Location) -> str:
        """The text of a span."""
        first, last = (self._line_starts[line - 1] for line in (place.line, place.end_line))
        return self.text[first + place.column - 1 : last + place.end_column - 1]

    @property
    def regions(self) -> Iterator[Region]:
        yield from self.functions.values()
        for owner in self.all_classes:
            yield from owner.methods.values()

    @property
    def all_classes(self) -> Iterator[Class]:
        yield from self.classes.values()
        yield from self.redefined

    def family(self, owner: Class) -> tuple[Class, ...]:
        """A class and those of its bases that are in the file."""
        if owner not in self._families:
            found = [owner]
            for cls in found:
                near = (self.classes.get(base.rpartition(".")[2]) for base in cls.bases)
                found.extend(base for base in near if base and base not in found)
            self._families[owner] = tuple(found)
        return self._families[owner]

    def let_go(self) -> None:
        """Parts regions from how they are written and classes from their methods, which know each other, so that all of
        it, and the trees behind it, are free at once."""
        for region in self.regions:
            vars(region).pop("written", None)
        for owner in self.all_classes:
            owner.methods.clear()

    @cached_property
    def imports(self) -> dict[str, str]:
        """Local name → dotted name, of every import in the file."""
        return dict(_imports(self.text))

    @cached_property
    def constants(self) -> dict[str, str]:
        """Text of the values that are assigned to names at the top of the file."""
        return dict(_CONSTANT.findall("\n" + self.text))


@dataclass
class _Block:
    kind: str
    name: str
    indent: int
    start: int
    line: int
    owner: Class | None


def cut(path: str, text: str) -> Source:
    """The regions of a file. A function inside a function belongs to the region of the outer one.

    A region reaches to the next decorator, function or class that is not deeper than itself.
    """
    source = Source(path, text)
    stack: list[_Block] = []
    decorated = -1  # where the decorators of what comes next begin
    line, counted = 1, 0
    for start, found in _landmarks(text):
        indent = len((found["indent"] or "").expandtabs())
        first = start if decorated < 0 else decorated
        while stack and indent <= stack[-1].indent:
            _close(stack.pop(), first, source)
        if found["decorator"]:
            decorated = first
            continue
        if found["kind"] and not any(block.kind == "def" for block in stack):
            owner = next((block.owner for block in reversed(stack) if block.kind == "class"), None)
            line, counted = line + text.count("\n", counted, first), first
            block = _Block(found["kind"], found["name"], indent, first, line, owner)
            if block.kind == "class":
                block.owner = Class(block.name, "")
            stack.append(block)
        decorated = -1
    while stack:
        _close(stack.pop(), len(text), source)
    return source


def _landmarks(text: str) -> Iterator[tuple[int, re.Match[str]]]:
    """Decorators, heads of functions and classes, and statements of the module itself, outside of long strings."""
    strings = _long_strings(text)
    start, end = next(strings, (len(text), len(text)))
    for found in _LANDMARK.finditer("\n" + text):
        offset = found.start()
        while end <= offset and start < len(text):
            start, end = next(strings, (len(text), len(text)))
        if not start <= offset < end:
            yield offset, found


def _long_strings(text: str) -> Iterator[tuple[int, int]]:
    position = 0
    following = {quote: text.find(quote) for quote in ('"""', "'''")}
    while True:
        for quote, at in following.items():
            if 0 <= at < position:
                following[quote] = text.find(quote, position)
        opened = [(at, quote) for quote, at in following.items() if at >= 0]
        if not opened:
            return
        start, quote = min(opened)
        closing = text.find(quote, start + 3)
        position = len(text) if closing < 0 else closing + 3
        yield start, position


def _close(block: _Block, end: int, source: Source) -> None:
    text = source.text[block.start : end]
    if block.kind == "class" and block.owner:
        block.owner.text = text
        if block.name in source.classes:
            source.redefined.append(source.classes[block.name])
        source.classes[block.name] = block.owner
        return
    copy = source.texts[text]
    source.texts[text] += 1
    region = Region(source.path, block.name, block.line, text, block.owner, copy)
    home = block.owner.methods if block.owner else source.functions
    # a property's setter and an overload come after or before the real thing; the longest body is the one to read
    known = home.get(block.name)
    if known is None or len(known.text) < len(text):
        home[block.name] = region


_IMPORT = re.compile(
    r"\n[ \t]*+(?=[fi])(?:from[ \t]+(?P<module>[\w.]+)[ \t]+import[ \t]+(?:\((?P<listed>[^)]*)\)|(?P<names>[^\n#(]+))"
    r"|import[ \t]+(?P<plain>[^\n#]+))"
)


def _imports(text: str) -> Iterator[tuple[str, str]]:
    for found in _IMPORT.finditer("\n" + text):
        listed = re.sub(r"#[^\n]*", "", found["listed"] or found["names"] or found["plain"])
        for entry in listed.split(","):
            name, _, alias = (
                part.strip(" \t\r\n\\") for part in re.sub(r"\s+as\s+", "=", entry.strip()).partition("=")
            )
            if not name.replace(".", "").isidentifier():
                continue
            if found["module"]:
                yield alias or name, f"{found['module']}.{name}"
            elif alias:
                yield alias, name
            else:
                yield name.partition(".")[0], name.partition(".")[0]
