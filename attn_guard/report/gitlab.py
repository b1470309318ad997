"""The Code Quality report of GitLab (a subset of Code Climate's format)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attn_guard.findings import Finding, Report, Severity
from attn_guard.fingerprint import fingerprints, relative
from attn_guard.lines import in_file

SEVERITIES = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.INFO: "info"}


def render(report: Report) -> str:
    """A JSON array with one object per finding. Fingerprints are unique; findings without a file stay out."""
    placed = [found for found in report.findings if found.location.line]
    marks = fingerprints(placed)
    return json.dumps([_issue(found, mark) for found, mark in zip(placed, marks, strict=True)], indent=2)


def _issue(found: Finding, fingerprint: str) -> dict[str, Any]:
    place = in_file(found.location)
    return {
        "check_name": found.code,
        "description": f"{found.code} {found.name}: {found.message}; {found.help}",
        "fingerprint": fingerprint,
        "severity": SEVERITIES[found.severity],
        "location": {
            "path": relative(place.path, Path.cwd()),
            "positions": {
                "begin": {"line": place.line, "column": place.column or 1},
                "end": {"line": place.end_line or place.line, "column": place.end_column or place.column or 1},
            },
        },
    }
