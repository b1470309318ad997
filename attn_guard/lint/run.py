"""Runs the linter over files.

What can be said of a file at a glance, or is known from an earlier run, is said at once. The rest is judged, by several
processes where that pays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from attn_guard.collection import rare_collection
from attn_guard.findings import Finding, Report, merge, placed
from attn_guard.lint.cache import Cache
from attn_guard.lint.comments import comment_findings
from attn_guard.lint.files import decode, is_notebook, python_files
from attn_guard.lint.plan import SYNTAX_ERROR, Plan
from attn_guard.lint.prefilter import may_matter
from attn_guard.lint.syntax import syntax_error, unparsed
from attn_guard.lint.workers import spread
from attn_guard.suppressions import Suppressions


def lint_paths(
    paths: Iterable[Path],
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    preview: bool = False,
    jobs: int = 1,
    cache: Path | None = None,
) -> Report:
    """Lints files, and the Python files in folders.

    ``jobs`` is the largest number of processes, ``cache`` a folder that remembers what was found.
    Raises `attn_guard.errors.UsageError` for a path that does not exist or an unknown code.
    """
    return lint_files(find_files(paths), select=select, ignore=ignore, preview=preview, jobs=jobs, cache=cache)


def find_files(paths: Iterable[Path]) -> Iterator[File]:
    """The files that `lint_paths` lints. Raises `attn_guard.errors.UsageError` for a path that does not exist."""
    chosen = list(paths)
    named = {path for path in chosen if path.is_file()}
    return (File(path, path in named) for path in python_files(chosen))


def lint_files(
    files: Iterable[File],
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    preview: bool = False,
    jobs: int = 1,
    cache: Path | None = None,
) -> Report:
    """Lints files that have been found; see `lint_paths`."""
    plan = Plan.of(select, ignore, preview=preview)
    with Cache.open(cache, plan) as known, rare_collection():
        return merge(_reports(files, plan, known, jobs))


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
    return Judge(Plan.of(select, ignore, preview=preview)).content(content, path, is_named=True)


@dataclass(frozen=True, slots=True)
class File:
    """A file to lint. One that is named itself is checked for its syntax whatever it holds."""

    path: Path
    is_named: bool
    size: int = 0


@dataclass(frozen=True, slots=True)
class Judge:
    """Says what there is to say about a file, or the content of one."""

    plan: Plan

    def file(self, file: File) -> tuple[bytes, Report]:
        """The content of a file, and what is found in it."""
        try:
            content = file.path.read_bytes()
        except OSError as error:
            return b"", self._unread(_unreadable(file.path, error))
        with rare_collection():  # here as well, as a process of its own begins with the usual one
            return content, self.content(content, str(file.path), file.is_named)

    def content(self, content: bytes, path: str, is_named: bool) -> Report:
        if not is_named and is_plain(content):
            return Report(files=1)
        if is_notebook(path):
            return self._notebook(content, path, is_named)
        return self._text(decode(content), path, is_named, matters=may_matter(content))

    def _text(self, text: str, path: str, is_named: bool, *, matters: bool) -> Report:
        broken, comments = syntax_error(text, path) if is_named else None, Suppressions.of(text)
        if broken is None and not matters:
            return self._commented(Report(files=1), path, comments)
        if broken is None:
            from attn_guard.lint.judge import judge  # late: it brings the parser

            report = judge(path, text, comments, self.plan)
            if report is not None:
                return self._commented(report, path, comments)
            broken = syntax_error(text, path)
        return self._unread(broken) if broken else Report(files=1)

    def _notebook(self, content: bytes, path: str, is_named: bool) -> Report:
        """Reads the cells of a notebook as one text. A cell that does not parse is a finding, and the others are
        read."""
        from attn_guard.notebook import Notebook, NotebookError  # late, as few runs meet one

        try:
            notebook = Notebook(content)
        except NotebookError as error:
            return self._unread(unparsed(path, error.line, error.column, str(error)))
        report = self._text(notebook.text, path, False, matters=_text_matters(notebook.text))
        broken = [
            placed(unparsed(path, cell.first + cell.error[0] - 1, 1, cell.error[1], rest="cell"), notebook.place)
            for cell in notebook.cells
            if cell.error and SYNTAX_ERROR in self.plan.own and (is_named or _text_matters(cell.source))
        ]
        found = [*broken, *(placed(finding, notebook.place) for finding in report.findings)]
        return replace(
            report,
            findings=tuple(sorted(found, key=lambda finding: finding.sort_key)),
            suppressed=tuple(placed(finding, notebook.place) for finding in report.suppressed),
            sites=tuple(site.placed(notebook.place) for site in report.sites),
        )

    def _unread(self, broken: Finding) -> Report:
        return Report(findings=(broken,) if SYNTAX_ERROR in self.plan.own else (), files=1)

    def _commented(self, report: Report, path: str, comments: Suppressions) -> Report:
        """The report with what there is to say about the comments that silence findings."""
        said = [
            found
            for found in comment_findings(path, comments, report.suppressed, self.plan)
            if found.code in self.plan.own
        ]
        kept = [found for found in said if not comments.silences(found.code, found.location.line)]
        if not said:
            return report
        return replace(
            report,
            findings=tuple(sorted((*report.findings, *kept), key=lambda finding: finding.sort_key)),
            suppressed=(*report.suppressed, *(found for found in said if found not in kept)),
        )


def is_plain(content: bytes) -> bool:
    """Whether there is nothing to say about a file: it holds no attention, and no comment to attn-guard."""
    return not may_matter(content) and b"attn-guard:" not in content


def _text_matters(text: str) -> bool:
    return may_matter(text.encode(errors="replace"))


def _unreadable(path: Path, error: OSError) -> Finding:
    return unparsed(str(path), 1, 0, error.strerror or str(error))


def _reports(files: Iterable[File], plan: Plan, known: Cache, jobs: int) -> Iterator[Report]:
    settled: list[Report] = []
    for file, (content, report) in spread(Judge(plan).file, _unsettled(files, known, settled), jobs):
        known.put(content, file.is_named, str(file.path), report)
        yield report
    yield from settled


def _unsettled(files: Iterable[File], known: Cache, settled: list[Report]) -> Iterator[File]:
    """The files that have to be read closely, with their sizes; what is known of the others is put into ``settled``."""
    for file in files:
        report = _at_once(file, known)
        if isinstance(report, Report):
            settled.append(report)
        else:
            yield replace(file, size=report)


def _at_once(file: File, known: Cache) -> Report | int:
    """What is known of a file without reading it closely; its size where nothing is."""
    try:
        content = file.path.read_bytes()
    except OSError:
        return 0
    report = known.get(content, file.is_named, str(file.path))
    if report is None and not file.is_named and is_plain(content):
        report = Report(files=1)
        known.put(content, file.is_named, str(file.path), report)
    return len(content) if report is None else report
