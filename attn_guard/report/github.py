"""Annotations that GitHub Actions shows beside the lines of a pull request (workflow commands)."""

from __future__ import annotations

from pathlib import Path

from attn_guard.findings import Finding, Report, Severity
from attn_guard.fingerprint import relative
from attn_guard.lines import in_file
from attn_guard.report.text import mended_by

COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(report: Report) -> str:
    """One ``::error file=…::`` line per finding; nothing where nothing was found."""
    return "\n".join(_line(found) for found in report.findings)


def _line(found: Finding) -> str:
    place = in_file(found.location)
    fields = {"title": f"{found.code} {found.name}"}
    if place.line:
        fields |= {"file": relative(place.path, Path.cwd()), "line": str(place.line)}
        if place.column:
            fields["col"] = str(place.column)
        if place.end_line:
            fields["endLine"] = str(place.end_line)
        if place.end_column and place.end_line == place.line:  # columns of several lines are not understood
            fields["endColumn"] = str(place.end_column)
    shown = ",".join(f"{name}={_property(value)}" for name, value in fields.items())
    return f"::{COMMANDS[found.severity]} {shown}::{_data(_message(found))}"


def _message(found: Finding) -> str:
    place = found.location
    where = (
        f" (in {place.module})" if place.module else f" (cell {place.cell}, line {place.line})" if place.cell else ""
    )
    mended = f"\nfix: {options} mends it" if (options := mended_by(found)) else ""
    return f"{found.message}{where}\nhelp: {found.help}{mended}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
