"""The table ``[tool.attn-guard]`` of pyproject.toml.

[tool.attn-guard]
paths = ["src"]                      # what is linted when nothing is named
exclude = ["src/vendor", "*_pb2.py"]
select = ["ATN"]                     # codes, or beginnings of codes
ignore = ["ATN101"]
preview = false
per-file-ignores = { "tests/*" = ["ATN102"] }
severity = { ATN203 = "warning" }    # error, warning or info instead of a gotcha's own
baseline = "attn-guard-baseline.json"
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attn_guard.errors import UsageError
from attn_guard.findings import Severity

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Report

TABLE = "tool.attn-guard"
_CODE = re.compile(r"[A-Z]{3,}\d{0,3}")


@dataclass(frozen=True, slots=True)
class Config:
    """What a project asks for. ``root`` is the folder that its paths and patterns are relative to."""

    root: Path
    paths: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    preview: bool = False
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    severity: Mapping[str, Severity] = field(default_factory=dict)
    baseline: str = ""

    def excludes(self, path: Path) -> bool:
        """Whether a file, or a folder above it, matches one of the ``exclude`` patterns."""
        return any(self._matches(pattern, path) for pattern in self.exclude)

    def apply(self, report: Report) -> Report:
        """The report in the severities of ``severity``, without what ``exclude`` and ``per-file-ignores`` silence; that
        goes to ``suppressed``."""
        if not (self.exclude or self.per_file_ignores or self.severity):
            return report
        report = replace(report, findings=tuple(self._weighed(finding) for finding in report.findings))
        silenced = [finding for finding in report.findings if self._silences(finding)]
        kept = tuple(finding for finding in report.findings if finding not in silenced)
        return replace(report, findings=kept, suppressed=(*report.suppressed, *silenced))

    def _weighed(self, finding: Finding) -> Finding:
        """A finding in the severity that the longest beginning of its code asks for."""
        asked = [codes for codes in self.severity if finding.code.startswith(codes)]
        return replace(finding, severity=self.severity[max(asked, key=len)]) if asked else finding

    def _silences(self, finding: Finding) -> bool:
        path = Path(finding.location.path)
        return self.excludes(path) or any(
            finding.code.startswith(codes) and self._matches(pattern, path)
            for pattern, codes in self.per_file_ignores.items()
        )

    def _matches(self, pattern: str, path: Path) -> bool:
        """A pattern names a file or folder: by its path from the root, or, without a slash, by its name."""
        try:
            inside = path.resolve().relative_to(self.root.resolve())
        except ValueError:
            return False
        pattern = pattern.rstrip("/")
        places = [inside, *inside.parents][:-1]
        return any(fnmatch(place.as_posix(), pattern) or fnmatch(place.name, pattern) for place in places)


def load(start: Path) -> Config:
    """The configuration for a run that starts in a folder: of the nearest pyproject.toml upwards that has the table.

    Raises `UsageError` for an unknown key, a value of the wrong type, or a file that is not TOML.
    """
    start = start.resolve()
    return Nearest(lambda config: config, start).inside(start)


class Nearest:
    """The configuration of each file: of the nearest pyproject.toml upwards that has the table, adjusted by what a run
    asks for. Where there is none, everything is relative to ``root``."""

    def __init__(self, adjust: Callable[[Config], Config], root: Path) -> None:
        self._adjust, self._root = adjust, root
        self._known: dict[Path, Config] = {}

    def of(self, path: Path) -> Config:
        """Raises `UsageError` as `load` does."""
        return self.inside(Path(os.path.abspath(path)).parent)  # noqa: PTH100

    def inside(self, folder: Path) -> Config:
        """The configuration of the files in a folder."""
        if folder not in self._known:
            file = folder / "pyproject.toml"
            table = _table(file)
            if table is not None:
                self._known[folder] = self._adjust(_config(table, file))
            elif folder.parent != folder:
                self._known[folder] = self.inside(folder.parent)
            else:
                self._known[folder] = self._adjust(Config(root=self._root))
        return self._known[folder]


def _table(file: Path) -> dict[str, Any] | None:
    try:
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    if b"attn-guard" not in text:  # most files; spares the start-up the TOML parser
        return None
    import tomllib

    try:
        table = tomllib.loads(text.decode()).get("tool", {}).get("attn-guard")
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file}: not valid TOML: {error}") from None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{file}: {TABLE} = {table!r}: expected a table")
    return table


def _config(table: Mapping[str, Any], file: Path) -> Config:
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            import difflib  # late, as nobody mistypes a key twice

            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_KEYS)}"
            raise UsageError(f"{file}: [{TABLE}] has an unknown key {key!r}; {hint}")
        read, expected = _KEYS[key]
        try:
            values[key.replace("-", "_")] = read(value)
        except TypeError:
            raise UsageError(f"{file}: [{TABLE}] {key} = {value!r}: expected {expected}") from None
    return Config(root=file.parent, **values)


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError
    return tuple(value)


def _codes(value: object) -> tuple[str, ...]:
    codes = _strings(value)
    if not all(_CODE.fullmatch(code) for code in codes):
        raise TypeError
    return codes


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _severities(value: object) -> dict[str, Severity]:
    if not isinstance(value, dict) or not all(name in [*Severity] for name in value.values()):
        raise TypeError
    codes = _codes(list(value))
    return {code: Severity(value[code]) for code in codes}


def _ignores(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise TypeError
    return {pattern: _codes(codes) for pattern, codes in value.items()}


_KEYS: Mapping[str, tuple[Callable[[object], object], str]] = {
    "paths": (_strings, 'a list of files and folders, such as ["src"]'),
    "exclude": (_strings, 'a list of patterns, such as ["src/vendor", "*_pb2.py"]'),
    "select": (_codes, 'a list of codes, such as ["ATN201"]'),
    "ignore": (_codes, 'a list of codes, such as ["ATN201"]'),
    "preview": (_boolean, "true or false"),
    "per-file-ignores": (_ignores, 'a table of patterns and codes, such as { "tests/*" = ["ATN101"] }'),
    "severity": (_severities, 'a table of codes and "error", "warning" or "info", such as { ATN203 = "warning" }'),
    "baseline": (_string, 'the path of a file, such as "attn-guard-baseline.json"'),
}
