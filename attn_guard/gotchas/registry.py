"""Finds the gotcha files, checks that each is complete, and selects those that a run asks for."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import attn_guard.gotchas as package
from attn_guard.errors import UsageError
from attn_guard.findings import Detector, Finding, Fix
from attn_guard.gotchas import Gotcha
from attn_guard.gotchas.plugins import plugin_modules

SECTIONS = ("What it does", "Why is this bad", "Example", "Use instead")

Check = Callable[[Any], Iterable[Finding]]
MakeFix = Callable[[Any], Fix | None]


class IncompleteGotcha(Exception):
    """A gotcha file lacks its documentation, a check, or a twin example."""


@dataclass(frozen=True)
class Entry:
    """A gotcha with its checks, its documentation page and its twin examples."""

    gotcha: Gotcha
    page: str
    broken: Path
    fixed: Path
    check: Check | None
    lint: Check | None
    probe: Check | None
    fix: MakeFix | None = None

    @property
    def detectors(self) -> tuple[Detector, ...]:
        found = []
        if self.check or self.lint:
            found.append(Detector.LINT)
        if self.check or self.probe:
            found.append(Detector.PROBE)
        return tuple(found)


@cache
def entries() -> dict[str, Entry]:
    """Every gotcha by code, in the order of the codes, those of other packages among them.

    Raises `UsageError` for a package whose gotchas cannot be loaded or are incomplete.
    """
    names = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if info.name.startswith("atn"))
    found: dict[str, Entry] = {}
    for name in names:
        _add(read(importlib.import_module(f"{package.__name__}.{name}"), examples()), found)
    for origin, module in plugin_modules():
        try:
            _add(read(module, Path(module.__file__ or "").parent / "examples"), found)
        except IncompleteGotcha as error:
            raise UsageError(f"{origin} is incomplete: {error}") from error
    return dict(sorted(found.items()))


def _add(entry: Entry, found: dict[str, Entry]) -> None:
    code = entry.gotcha.code
    if code in found:
        raise IncompleteGotcha(f"{entry.broken.stem}: code {code} is taken by {found[code].gotcha.name}")
    found[code] = entry


def read(module: ModuleType, twins: Path) -> Entry:
    """The entry of one gotcha file. Raises `IncompleteGotcha` and says what is missing."""
    gotcha = getattr(module, "GOTCHA", None)
    name = module.__name__.rpartition(".")[2]
    if not isinstance(gotcha, Gotcha):
        raise IncompleteGotcha(f"{name}: has no GOTCHA = Gotcha(...)")
    expected = f"{gotcha.code.lower()}_{gotcha.name.replace('-', '_')}"
    if name != expected:
        raise IncompleteGotcha(f"{name}: a gotcha {gotcha.code} {gotcha.name} belongs in {expected}.py")
    page = module.__doc__ or ""
    missing = [section for section in SECTIONS if f"{section}\n---" not in page]
    if missing and sys.flags.optimize < 2:
        raise IncompleteGotcha(f"{name}: its docstring lacks the section(s) {', '.join(missing)}")
    checks = {kind: getattr(module, kind, None) for kind in ("check", "lint", "probe")}
    if not any(checks.values()):
        raise IncompleteGotcha(f"{name}: has none of check(site), lint(function), probe(xray)")
    broken, fixed = (twins / kind / f"{name}.py" for kind in ("broken", "fixed"))
    for twin in (broken, fixed):
        if not twin.is_file():
            raise IncompleteGotcha(f"{name}: the twin example {twin.parent.name}/{twin.name} is missing")
    return Entry(gotcha, page, broken, fixed, **checks, fix=getattr(module, "fix", None))


@cache
def examples() -> Path:
    """The folder of the twin examples: inside an installed package, or beside it in a checkout."""
    inside = Path(package.__file__).parent.parent
    return next(root for root in (inside / "examples", inside.parent / "examples") if (root / "broken").is_dir())


def select(
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    *,
    preview: bool = False,
    detector: Detector,
) -> tuple[Entry, ...]:
    """The gotchas that a reader runs.

    A code may be shortened: "ATN2" stands for every gotcha of the 2xx group, "ALL" for all of them. Without
    ``select`` all stable ones run; a full code in ``select`` also turns on a preview gotcha,
    and one that only runs on request. Raises `UsageError`
    for a code or prefix that matches nothing.
    """
    wanted, unwanted = tuple(select), tuple(ignore)
    for code in (*wanted, *unwanted):
        if not any(matches(code, known) for known in (*entries(), *TOOL_CODES)):
            raise UsageError(f"unknown code {code!r}; `attn-guard rules` lists the codes there are")
    chosen = []
    for code, entry in entries().items():
        if detector not in entry.detectors or any(matches(prefix, code) for prefix in unwanted):
            continue
        if wanted and not any(matches(prefix, code) for prefix in wanted):
            continue
        if detector in entry.gotcha.preview and not preview and code not in wanted:
            continue
        if entry.gotcha.on_request and code not in wanted:
            continue
        chosen.append(entry)
    return tuple(chosen)


TOOL_CODES = ("ATN900", "ATN901", "ATN902", "ATN903")


def matches(prefix: str, code: str) -> bool:
    """Whether a code, the beginning of one with all of its letters, or "ALL" stands for a code."""
    return prefix == "ALL" or (code.startswith(prefix) and prefix.startswith(code.rstrip("0123456789")))
