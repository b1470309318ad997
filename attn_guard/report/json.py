"""The report for other programs. The schema only grows; ``version`` changes when a field changes its meaning."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any

from attn_guard.findings import Finding, Report, Severity

VERSION = 1


def render(report: Report) -> str:
    """A JSON object with ``version``, ``findings``, ``sites``, ``assumptions`` and ``counts``."""
    severities = [found.severity for found in report.findings]
    counts = {
        **{str(level): severities.count(level) for level in Severity},
        "suppressed": len(report.suppressed),
        "files": report.files,
        "regions": report.regions,
        "sites": len(report.sites),
    }
    document = {
        "version": VERSION,
        "tool": "attn-guard",
        "title": report.title,
        "findings": [_finding(found) for found in report.findings],
        "sites": [plain(site) for site in report.sites],
        "assumptions": list(report.assumptions),
        "counts": counts,
    }
    return json.dumps(document, indent=2, allow_nan=False)


def _finding(found: Finding) -> dict[str, Any]:
    related = [{"location": plain(place), "label": label} for place, label in found.related]
    return {**plain(found), "related": related}


def plain(value: Any) -> Any:
    """A value in the terms of JSON. Numbers that JSON lacks become words: "inf", "-inf", "nan"."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
