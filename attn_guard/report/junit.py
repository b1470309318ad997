"""JUnit XML, for build servers: one test case per finding, and one that passes where nothing was found."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from attn_guard.findings import Finding, Report
from attn_guard.fingerprint import relative
from attn_guard.lines import in_file
from attn_guard.report import text
from attn_guard.report.style import Style

# What XML 1.0 cannot hold, not even escaped.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    """A ``testsuite`` named attn-guard. Findings that fail a run are failures; those to know are cases that pass."""
    failures = sum(found.fails for found in report.findings)
    total = str(max(1, len(report.findings)))
    suite = ElementTree.Element("testsuite", name="attn-guard", tests=total, failures=str(failures), errors="0")
    for found in report.findings:
        _case(suite, found)
    if not report.findings:
        ElementTree.SubElement(suite, "testcase", name="attention", classname="attn-guard")
    root = ElementTree.Element("testsuites", name="attn-guard", tests=total, failures=str(failures), errors="0")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode")


def _case(suite: ElementTree.Element, found: Finding) -> None:
    place = in_file(found.location)
    path = relative(place.path, Path.cwd())
    where = f"{path}:{place.line}" if place.line else path
    case = ElementTree.SubElement(
        suite, "testcase", name=_clean(f"{found.code} {found.name} {where}"), classname=_clean(path)
    )
    if place.line:
        case.attrib |= {"file": _clean(path), "line": str(place.line)}
    options = text.mended_by(found)
    mended = f"\n  fix: {options} mends it" if options else ""
    shown = _clean(text.finding(found, Style(color=False, ascii=False)) + mended)
    if found.fails:
        failure = ElementTree.SubElement(case, "failure", message=_clean(found.message), type=found.code)
        failure.text = shown
    else:
        ElementTree.SubElement(case, "system-out").text = shown


def _clean(value: str) -> str:
    return _FORBIDDEN.sub("\ufffd", value)
