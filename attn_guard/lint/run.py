"""Runs the lint reader and the gotchas over files."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from attn_guard.anatomy import Site
from attn_guard.collection import no_collection
from attn_guard.findings import Finding, Location, Report, Severity, merge, placed
from attn_guard.gotchas.registry import Entry
from attn_guard.lint.comments import comment_findings
from attn_guard.lint.decorators import decorator_calls
from attn_guard.lint.files import decode, python_files
from attn_guard.lint.fixes import with_fix
from attn_guard.lint.parsing import parse
from attn_guard.lint.plan import SYNTAX_ERROR, Plan
from attn_guard.lint.prefilter import may_matter
from attn_guard.lint.reader import Reading, read
from attn_guard.lint.regions import Source, cut
from attn_guard.notebook import Notebook, NotebookError, is_notebook
from attn_guard.suppressions import Suppressions


def lint_paths(
    paths: Iterable[Path], *, select: Iterable[str] = (), ignore: Iterable[str] = (), preview: bool = False
) -> Report:
    """Lints files, and the Python files in folders.

    Raises `attn_guard.errors.UsageError` for a path that does not exist or an unknown code.
    """
    plan = Plan.of(select, ignore, preview=preview)
    chosen = list(paths)
    named = {path for path in chosen if path.is_file()}
    with no_collection():
        return merge(_lint_file(path, path in named, plan) for path in python_files(chosen))


def lint_source(
    source: str | bytes,
    path: str,
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    preview: bool = False,
) -> Report:
    """Lints source text as if it were the content of ``path``."""
    content = source.encode() if isinstance(source, str) else source
    return _lint_content(content, path, True, Plan.of(select, ignore, preview=preview))


def _lint_file(path: Path, named: bool, plan: Plan) -> Report:
    try:
        content = path.read_bytes()
    except OSError as error:
        return _unread(plan, _unparsed(str(path), 1, 0, error.strerror or str(error)))
    return _lint_content(content, str(path), named, plan)


def _lint_content(content: bytes, path: str, named: bool, plan: Plan) -> Report:
    matters = may_matter(content)
    if not matters and not named and b"attn-guard:" not in content:
        return Report(files=1)
    if is_notebook(path):
        return _lint_notebook(content, path, named, plan)
    return _lint_text(decode(content), path, named, plan, matters=matters)


def _lint_text(text: str, path: str, named: bool, plan: Plan, *, matters: bool) -> Report:
    broken = syntax_error(text, path) if named else None
    if broken is None and not matters:
        return _commented(Report(files=1), path, Suppressions.of(text), plan)
    if broken is None:
        source = cut(path, text)
        reading = read(source)
        if any(region.is_unreadable for region in source.regions):
            broken = syntax_error(text, path)
        if broken is None:
            return _judge(source, reading, plan)
    return _unread(plan, broken)


def _lint_notebook(content: bytes, path: str, named: bool, plan: Plan) -> Report:
    """Reads the cells of a notebook as one text. A cell that does not parse is a finding, and the others are read."""
    try:
        notebook = Notebook(content)
    except NotebookError as error:
        return _unread(plan, _unparsed(path, error.line, error.column, str(error)))
    report = _lint_text(notebook.text, path, False, plan, matters=may_matter(notebook.text.encode(errors="replace")))
    broken = [
        placed(_unparsed(path, cell.first + cell.error[0] - 1, 1, cell.error[1], rest="cell"), notebook.place)
        for cell in notebook.cells
        if cell.error and SYNTAX_ERROR in plan.own and (named or may_matter(cell.source.encode(errors="replace")))
    ]
    found = [*broken, *(placed(finding, notebook.place) for finding in report.findings)]
    return replace(
        report,
        findings=tuple(sorted(found, key=lambda finding: finding.sort_key)),
        suppressed=tuple(placed(finding, notebook.place) for finding in report.suppressed),
        sites=tuple(site.placed(notebook.place) for site in report.sites),
    )


def _unread(plan: Plan, broken: Finding) -> Report:
    return Report(findings=(broken,) if SYNTAX_ERROR in plan.own else (), files=1)


def _judge(source: Source, reading: Reading, plan: Plan) -> Report:
    found = [finding for entry in plan.entries for finding in _findings(entry, reading)]
    unique = {(f.code, f.location.line, f.location.column): f for f in reversed(found)}
    ordered = sorted(unique.values(), key=lambda finding: finding.sort_key)
    comments = Suppressions.of(source.text)
    allowed = list(_allowed(source)) if ordered and "allow(" in source.text else []
    silenced = [f for f in ordered if comments.silences(f.code, f.location.line) or any(a.holds(f) for a in allowed)]
    made = {entry.gotcha.code: entry.fix for entry in plan.entries}
    report = Report(
        findings=tuple(with_fix(f, made.get(f.code), source) for f in ordered if f not in silenced),
        sites=reading.sites,
        files=1,
        regions=sum(region.is_parsed for region in source.regions),
        suppressed=tuple(silenced),
    )
    return _commented(report, source.path, comments, plan)


def _commented(report: Report, path: str, comments: Suppressions, plan: Plan) -> Report:
    """The report with what there is to say about the comments that silence findings."""
    said = [found for found in comment_findings(path, comments, report.suppressed, plan) if found.code in plan.own]
    kept = [found for found in said if not comments.silences(found.code, found.location.line)]
    if not said:
        return report
    return replace(
        report,
        findings=tuple(sorted((*report.findings, *kept), key=lambda finding: finding.sort_key)),
        suppressed=(*report.suppressed, *(found for found in said if found not in kept)),
    )


def _findings(entry: Entry, reading: Reading) -> Iterator[Finding]:
    if entry.check:
        for index, rough in enumerate(reading.sites):
            # only a site with a finding is worth the positions of its steps
            if any(True for _ in entry.check(rough)):
                yield from entry.check(reading.exact_site(index))
    if entry.lint:
        for function in reading.functions:
            yield from entry.lint(function)


class _Allowed(NamedTuple):
    """What ``@allow`` on a class silences: one code, on the lines of the class."""

    code: str
    first: int
    last: int

    def holds(self, finding: Finding) -> bool:
        return self.code == finding.code and self.first <= finding.location.line <= self.last


def _allowed(source: Source) -> Iterator[_Allowed]:
    for owner in source.classes.values():
        first = source.line_at(source.text.find(owner.text))
        for call in decorator_calls(owner, "allow"):
            if call.args and isinstance(call.args[0], ast.Constant):
                yield _Allowed(str(call.args[0].value), first, first + owner.text.count("\n"))


def syntax_error(text: str, path: str) -> Finding | None:
    """The finding for a file that does not parse; None for one that does."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        # this interpreter may be older than the syntax of the file, so the other parser has the last word
        if parse(text) is None:
            return _unparsed(path, error.lineno or 1, error.offset or 0, error.msg)
    except (ValueError, RecursionError, MemoryError) as error:
        return _unparsed(path, 1, 0, str(error) or "nested too deeply")
    return None


def _unparsed(path: str, line: int, column: int, reason: str, *, rest: str = "file") -> Finding:
    return Finding(
        code=SYNTAX_ERROR,
        name="syntax-error",
        severity=Severity.ERROR,
        message=f"the {rest} could not be parsed: {reason[:1].lower()}{reason[1:]}",
        location=Location(path, max(line, 1), column),
        help=f"correct the syntax; nothing else in this {rest} was checked",
    )


def sites_of(source: str, path: str = "<string>") -> tuple[Site, ...]:
    """The sites of a source text, exactly located."""
    reading = read(cut(path, source))
    return tuple(reading.exact_site(index) for index in range(len(reading.sites)))
