"""What lint items and probes tell the main process: plain values only, since they may travel between processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from attn_guard.report import text
from attn_guard.report.excerpt import shown_place
from attn_guard.report.style import Style, needs_ascii

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Report

ATTRIBUTE = "attn_guard"  # of a pytest report


class Told(TypedDict):
    """A finding, ready to print. ``key`` is the same for the same mistake at the same place."""

    key: str
    code: str
    fails: bool
    headline: str
    text: str


class Payload(TypedDict):
    """One linted file or one probed module. ``note`` says why something was not done."""

    kind: str
    name: str
    sites: list[str]
    findings: list[Told]
    note: str
    seconds: float


def payload(kind: str, name: str, report: Report | None = None, *, note: str = "", seconds: float = 0.0) -> Payload:
    return {
        "kind": kind,
        "name": name,
        "sites": [site.name for site in report.sites] if report is not None else [],
        "findings": [_told(finding) for finding in report.findings] if report is not None else [],
        "note": note,
        "seconds": seconds,
    }


def attach(report: Any, found: list[Payload]) -> None:
    """Puts payloads on a pytest report."""
    if found:
        setattr(report, ATTRIBUTE, [*attached(report), *found])


def attached(report: Any) -> list[Payload]:
    found: list[Payload] = getattr(report, ATTRIBUTE, [])
    return found


def _told(finding: Finding) -> Told:
    return {
        "key": f"{finding.code} {shown_place(finding.location)}",
        "code": finding.code,
        "fails": finding.fails,
        "headline": f"{finding.code} {finding.name}: {finding.message}",
        "text": text.finding(finding, Style(ascii=needs_ascii())),
    }
