"""Remembers what was found in a file, by its content.

There is one file of entries for each version of the tool and each selection of codes. It is replaced as a whole by a
finished one, so neither an interruption nor another run at the same time can leave half of one: of two runs that end
together, one run's entries are kept. A file that cannot be read back is as good as none.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any

import attn_guard.gotchas as package
from attn_guard.findings import Report
from attn_guard.gotchas.registry import Entry
from attn_guard.lint import record_format
from attn_guard.lint.plan import Plan

FOLDER = ".attn_guard_cache"
_KEPT = 50_000  # entries, the latest used first


@dataclass
class Cache:
    """What earlier runs with the same plan found. Without a file, nothing is known and nothing kept."""

    file: Path | None = None
    _old: dict[str, Any] = field(default_factory=dict)
    _used: dict[str, Any] = field(default_factory=dict)
    _is_new: bool = False

    @classmethod
    def open(cls, folder: Path | None, plan: Plan) -> Cache:
        if folder is None:
            return cls()
        file = folder / f"{_tool_and(plan)}.json"
        try:
            entries = json.loads(file.read_bytes())
        except (OSError, ValueError):
            entries = {}
        return cls(file, entries if isinstance(entries, dict) else {})

    def get(self, content: bytes, is_named: bool, path: str) -> Report | None:
        """The report on a content, as one on the file at ``path``; None where it is not known."""
        if self.file is None:
            return None
        key = _key(content, is_named, path)
        if key not in self._old:
            return None
        try:
            report = record_format.report_of(self._old[key], path)
        except (TypeError, ValueError, KeyError, AttributeError):  # written by something else
            return None
        self._used[key] = self._old[key]
        return report

    def put(self, content: bytes, is_named: bool, path: str, report: Report) -> None:
        if self.file is not None:
            self._used[_key(content, is_named, path)] = record_format.record_of(report, path)
            self._is_new = True

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.file is not None and self._is_new:
            with contextlib.suppress(OSError):  # a folder that cannot be written to only costs time
                self._write(self.file)

    def _write(self, file: Path) -> None:
        older = {key: entry for key, entry in self._old.items() if key not in self._used}
        entries = dict(list({**self._used, **older}.items())[:_KEPT])
        _prepare(file.parent)
        unfinished = file.with_suffix(f".{os.getpid()}.tmp")
        try:
            with unfinished.open("w", encoding="utf-8") as stream:
                json.dump(entries, stream, separators=(",", ":"))
            unfinished.replace(file)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def _prepare(folder: Path) -> None:
    """Makes the folder, and keeps it out of version control and backups."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    (folder / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n", encoding="utf-8")


def _key(content: bytes, is_named: bool, path: str) -> str:
    digest = blake2b(content, digest_size=16).hexdigest()
    return f"{digest}{'!' if is_named else ''}{Path(path).suffix}"


def _tool_and(plan: Plan) -> str:
    """One name for everything besides a file's content that its findings depend on."""
    codes = [(entry.gotcha.code, _version(entry)) for entry in plan.entries]
    text = json.dumps([tool(), codes, sorted(plan.own), sorted(plan.certain)])
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _version(entry: Entry) -> str:
    """What tells one version of another package's gotcha from the next: when its file and its twins were written."""
    check = entry.lint or entry.check
    file = check.__code__.co_filename if isinstance(check, FunctionType) else ""
    if Path(file).parent == Path(package.__file__).parent:
        return ""
    return str([Path(path).stat().st_mtime_ns for path in (file, entry.broken) if Path(path).is_file()])


@cache
def tool() -> str:
    """The version of what reads the files: Python, and the files of this package as they are installed."""
    root = Path(__file__).parent.parent
    seen = blake2b(sys.version.encode(), digest_size=8)
    for folder in (root, root / "gotchas", root / "lint"):
        with os.scandir(folder) as entries:
            for name, size, when in sorted(
                (e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in entries if e.is_file()
            ):
                seen.update(f"{name} {size} {when}".encode())
    return seen.hexdigest()
