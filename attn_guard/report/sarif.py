"""SARIF 2.1.0, for code scanning services and editors (OASIS standard, 2020; errata 01, 2023)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attn_guard import __version__
from attn_guard.findings import Edit, Finding, Fix, Location, Report, Severity
from attn_guard.fingerprint import fingerprints, relative
from attn_guard.lines import in_file
from attn_guard.report.rules import Rule, rule_of

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render(report: Report) -> str:
    """One run, with a rule per code that was found and a result per finding; silenced findings carry a suppression."""
    findings = (*report.findings, *report.suppressed)
    rules = {code: rule_of(code) for code in sorted({found.code for found in findings})}
    order = {code: index for index, code in enumerate(rules)}
    marks = fingerprints(findings)
    results = [
        _result(found, order[found.code], mark, suppressed=position >= len(report.findings))
        for position, (found, mark) in enumerate(zip(findings, marks, strict=True))
    ]
    driver = {"name": "attn-guard", "version": __version__, "rules": [_rule(rule) for rule in rules.values()]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.text},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
    }


def _result(found: Finding, rule: int, fingerprint: str, *, suppressed: bool) -> dict[str, Any]:
    result = {
        "ruleId": found.code,
        "ruleIndex": rule,
        "level": LEVELS[found.severity],
        "message": {"text": _message(found)},
        "locations": [_location(found.location)],
        "partialFingerprints": {"attnGuard/v1": fingerprint},
        "properties": {"detector": str(found.detector)},
    }
    related = [_location(place, label, number) for number, (place, label) in enumerate(found.related, start=1)]
    if related:
        result["relatedLocations"] = related
    if found.fix is not None and not found.location.cell:  # the edits of a cell are none of the file
        result["fixes"] = [_fix(found.fix, found.help)]
    if suppressed:
        result["suppressions"] = [{"kind": "inSource"}]
    return result


def _fix(fix: Fix, help: str) -> dict[str, Any]:
    paths = dict.fromkeys(edit.location.path for edit in fix.edits)
    changes = [
        {
            "artifactLocation": {"uri": _uri(path)},
            "replacements": [_replacement(edit) for edit in fix.edits if edit.location.path == path],
        }
        for path in paths
    ]
    return {"description": {"text": help}, "artifactChanges": changes}


def _replacement(edit: Edit) -> dict[str, Any]:
    return {"deletedRegion": _region(edit.location), "insertedContent": {"text": edit.text}}


def _message(found: Finding) -> str:
    numbers = f" (expected {found.expected}, found {found.found})" if found.expected and found.found else ""
    cell = f" (cell {found.location.cell}, line {found.location.line})" if found.location.cell else ""
    return f"{found.message}{numbers}{cell}. Fix: {found.help}"


def _location(place: Location, label: str = "", number: int = 0) -> dict[str, Any]:
    location: dict[str, Any] = {}
    place = in_file(place)
    if place.line:
        location["physicalLocation"] = {"artifactLocation": {"uri": _uri(place.path)}, "region": _region(place)}
    if place.module or not place.line:
        location["logicalLocations"] = [{"fullyQualifiedName": place.module or place.path, "kind": "module"}]
    if label:
        location |= {"id": number, "message": {"text": label}}
    return location


def _region(place: Location) -> dict[str, int]:
    region = {"startLine": place.line}
    if place.column:
        region["startColumn"] = place.column
    if place.end_line and place.end_column:
        region |= {"endLine": place.end_line, "endColumn": place.end_column}
    return region


def _uri(path: str) -> str:
    """Relative to the current folder, as code scanning wants it; a file URI for what lies elsewhere."""
    inside = relative(path, Path.cwd())
    return Path(inside).as_uri() if Path(inside).is_absolute() else inside.replace(" ", "%20")
