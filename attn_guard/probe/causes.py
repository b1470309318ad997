"""One fault, one finding: what follows from another finding is listed under it as its consequence.

Each gotcha says what it can bring about (`Gotcha.explains`); the cause nearest to the operation wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from attn_guard.findings import Finding, Severity
from attn_guard.gotchas.registry import entries


def by_cause(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings without those that another one explains; a cause names its consequences and shows their leak map."""
    distinct = list(_distinct(findings))
    causes = [finding for finding in distinct if finding.severity is not Severity.INFO]
    kept = []
    for finding in distinct:
        if not any(_explains(cause, finding) for cause in causes if cause is not finding):
            kept.append(_with_consequences(finding, distinct))
    return tuple(kept)


def _distinct(findings: Iterable[Finding]) -> Iterable[Finding]:
    """One finding per code and line: the one that measured more. It names the other modules that share the line."""
    groups: dict[tuple[str, str, int], list[Finding]] = {}
    for finding in findings:
        place = finding.location
        groups.setdefault((finding.code, place.path, place.line), []).append(finding)
    return [_of_all(group) for group in groups.values()]


def _of_all(group: Sequence[Finding]) -> Finding:
    best = max(group, key=_weight)
    others = list(dict.fromkeys(f.location.module for f in group if f.location.module != best.location.module))
    if not others:
        return best
    shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    return replace(best, notes=(*best.notes, f"the same in {shown}"))


def _weight(finding: Finding) -> tuple[bool, bool, int]:
    return (
        finding.severity is Severity.ERROR,
        finding.severity is Severity.WARNING,
        len(finding.found) + len(finding.notes),
    )


def _explains(cause: Finding, finding: Finding) -> bool:
    known = entries()
    listed = cause.code in known and finding.code in known[cause.code].gotcha.explains
    brought = finding.code in known and cause.code.startswith(known[finding.code].gotcha.explained_by)
    return cause.code != finding.code and (listed or brought)


def _with_consequences(cause: Finding, findings: Sequence[Finding]) -> Finding:
    if cause.severity is Severity.INFO:
        return replace(cause, consequences=())
    explained = [finding for finding in findings if finding is not cause and _explains(cause, finding)]
    leak = next((finding.leak_map for finding in explained if finding.leak_map), cause.leak_map)
    return replace(cause, consequences=tuple(dict.fromkeys(finding.code for finding in explained)), leak_map=leak)
