"""A fault as an edit of a right source text, and the mutant that the edit makes."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

STYLES = Path(__file__).parent / "styles"
Call = tuple[tuple[Any, ...], dict[str, Any]]
NAMES = sorted(path.stem for path in STYLES.glob("[a-z]*.py"))


@dataclass(frozen=True)
class Fault:
    """One mistake: the text ``old`` of a style becomes ``new``, and each pair of ``also`` with it.

    code: the gotcha it is.
    blame: beginnings of further lines that may rightly be blamed, where the mistake acts on another line than it was
        made on.
    sizes: of the call, where the mistake needs a coincidence (``{"batch": 7}``).
    situation: the experiment that shows it, where the usual ones for its code do not.
    padded: the call that is checked hands over padding.
    or_code: another code that says the same of this edit: the boundary between two gotchas can run through one line.
    """

    code: str
    old: str
    new: str
    also: tuple[tuple[str, str], ...] = ()
    blame: tuple[str, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    situation: str = ""
    padded: bool = False
    or_code: str = ""

    @property
    def codes(self) -> tuple[str, ...]:
        return (self.code, self.or_code) if self.or_code else (self.code,)


@dataclass(frozen=True)
class Mutant:
    """A style with one fault in it."""

    style: str
    fault: Fault
    number: int

    @property
    def name(self) -> str:
        return f"{self.style}-{self.fault.code}-{self.number}"

    @cached_property
    def source(self) -> str:
        text = source(self.style)
        for old, new in ((self.fault.old, self.fault.new), *self.fault.also):
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: {text.count(old)} times in the source, not once: {old!r}")
            text = text.replace(old, new)
        return text

    @cached_property
    def module(self) -> ModuleType:
        return load(self.name, self.source)

    @cached_property
    def faulty_lines(self) -> frozenset[int]:
        """The lines that a finding may blame: the edited statements, and what ``blame`` names."""
        lines = set(_edited(source(self.style), self.source))
        for number, line in enumerate(self.source.splitlines(), 1):
            if any(line.strip().startswith(text) for text in self.fault.blame):
                lines.add(number)
        for first, last in _statements(self.source):
            if not lines.isdisjoint(range(first, last + 1)):
                lines.update(range(first, last + 1))
        return frozenset(lines)


@cache
def source(style: str) -> str:
    return (STYLES / f"{style}.py").read_text(encoding="utf-8")


@cache
def right(style: str) -> ModuleType:
    """The module of a style as it should be."""
    return load(style, source(style))


def mutants(style: str = "", code: str = "") -> Iterator[Mutant]:
    for name in NAMES:
        if style in ("", name):
            faults: tuple[Fault, ...] = importlib.import_module(f"{__package__}.faults.{name}").FAULTS
            for number, fault in enumerate(faults, 1):
                if fault.code.startswith(code):
                    yield Mutant(name, fault, number)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="mutants-")


def load(name: str, text: str) -> ModuleType:
    """A source text as an imported module, from a file of its own so that lines can be shown."""
    path = Path(_folder().name) / f"{name.replace('-', '_')}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"mutant_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _edited(before: str, after: str) -> Iterator[int]:
    """Numbers of the lines of ``after`` that are new; around a deletion, the lines before and after it."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    for kind, _, _, first, last in matcher.get_opcodes():
        if kind == "delete":
            yield from (first, first + 1)
        elif kind != "equal":
            yield from range(first + 1, last + 1)


def _statements(text: str) -> Iterator[tuple[int, int]]:
    """First and last line of each simple statement."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            yield node.lineno, node.end_lineno or node.lineno
