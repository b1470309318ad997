"""Reads one file and lets the gotchas judge it. Brings the parser, so it is imported only for files that matter."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from attn_guard.anatomy import Site
from attn_guard.findings import Finding, Report, Severity
from attn_guard.gotchas.registry import Entry
from attn_guard.lint.decorators import decorator_calls
from attn_guard.lint.plan import Plan
from attn_guard.lint.reader import Reading, read
from attn_guard.lint.regions import Source, cut
from attn_guard.suppressions import Suppressions


def judge(path: str, text: str, comments: Suppressions, plan: Plan) -> Report | None:
    """What the gotchas say about a file, its comments heeded; None if one of its regions does not parse."""
    source = cut(path, text)
    reading = read(source)
    try:
        if any(region.is_unreadable for region in source.regions):
            return None
        return _report(source, reading, comments, plan)
    finally:
        source.let_go()
        reading.let_go()


def _report(source: Source, reading: Reading, comments: Suppressions, plan: Plan) -> Report:
    found = [finding for entry in plan.entries for finding in _findings(entry, reading)]
    unique = {(f.code, f.location.line, f.location.column): f for f in reversed(found)}
    ordered = sorted(unique.values(), key=lambda finding: finding.sort_key)
    allowed = list(_allowed(source)) if ordered and "allow(" in source.text else []
    silenced = [f for f in ordered if comments.silences(f.code, f.location.line) or any(a.holds(f) for a in allowed)]
    return Report(
        findings=tuple(_fixable([f for f in ordered if f not in silenced], plan, source)),
        sites=reading.sites,
        files=1,
        regions=sum(region.is_parsed for region in source.regions),
        suppressed=tuple(silenced),
    )


def _findings(entry: Entry, reading: Reading) -> Iterator[Finding]:
    if entry.check:
        for index, rough in enumerate(reading.sites):
            # only a site with a finding is worth the positions of its steps
            if next(iter(entry.check(rough)), None) is not None:
                yield from entry.check(reading.exact_site(index))
    if entry.lint:
        for function in reading.functions:
            if next(iter(entry.lint(function)), None) is not None:
                yield from entry.lint(function.exact)


def _fixable(findings: list[Finding], plan: Plan, source: Source) -> Iterator[Finding]:
    """Findings with the fixes that their gotchas know. What one that can be sure only remarks stays as it is."""
    known = {entry.gotcha.code: (entry.fix, entry.gotcha.severity) for entry in plan.entries}
    for finding in findings:
        make, severity = known.get(finding.code, (None, finding.severity))
        if make is not None and (finding.fails or severity is Severity.INFO):
            from attn_guard.lint.fixes import with_fix  # late, as it brings libcst

            finding = with_fix(finding, make, source)
        yield finding


class _Allowed(NamedTuple):
    """What ``@allow`` on a class silences: one code, on the lines of the class."""

    code: str
    first: int
    last: int

    def holds(self, finding: Finding) -> bool:
        return self.code == finding.code and self.first <= finding.location.line <= self.last


def _allowed(source: Source) -> Iterator[_Allowed]:
    for owner in source.all_classes:
        first = source.line_at(source.text.find(owner.text))
        for call in decorator_calls(owner, "allow"):
            if call.args and isinstance(call.args[0], ast.Constant):
                yield _Allowed(str(call.args[0].value), first, first + owner.text.count("\n"))


def sites_of(source: str, path: str = "<string>") -> tuple[Site, ...]:
    """The sites of a source text, exactly located."""
    reading = read(cut(path, source))
    return tuple(reading.exact_site(index) for index in range(len(reading.sites)))
