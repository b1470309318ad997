"""Makes the fixes of findings, until none is left to make.

Every pass is read again before it counts: it must parse, and it must have fewer findings of each code that it mended
and no more findings in all. Where a pass fails that, its fixes are tried one by one, and those that fail it are left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import StringIO
from itertools import accumulate

from attn_guard.findings import Finding, Fix, Report
from attn_guard.lint.documents import Document, document
from attn_guard.lint.syntax import syntax_error

PASSES = 5

Judge = Callable[[bytes], Report]


@dataclass(frozen=True)
class Mended:
    """What became of a file: its content, what is still found in it, and how many findings were mended."""

    content: bytes
    report: Report
    fixed: int = 0


def mend(content: bytes, path: str, judge: Judge, *, with_unsafe: bool = False) -> Mended:
    """The content of a file with its fixes made; everything else in it stays.

    Raises `attn_guard.notebook.NotebookError` for a notebook that cannot be read.
    """
    file = document(content, path)
    text = file.text
    report = judge(content)
    fixed = 0
    for _ in range(PASSES):
        wanted = [found for found in report.findings if found.fix and (found.fix.safe or with_unsafe)]
        for attempt in (wanted, *([one] for one in wanted)):
            changed, made = _edited(text, attempt, file)
            after = _accepted(changed, made, report, judge, file) if made else None
            if after is not None:
                text, report, fixed = changed, after, fixed + len(made)
                break
        else:
            break
    return Mended(file.written(text), report, fixed) if fixed else Mended(content, report)


def _accepted(changed: str, made: list[Finding], before: Report, judge: Judge, file: Document) -> Report | None:
    """What is found after an edit; None where it mends nothing, or does harm."""
    if syntax_error(changed, "") is not None:
        return None
    try:
        after = judge(file.written(changed))
    except ValueError:  # such as lines that a cell of a notebook gains or loses
        return None
    mends = all(
        after.codes[code] <= before.codes[code] - count for code, count in Counter(f.code for f in made).items()
    )
    return after if mends and len(after) < len(before) else None


def _edited(text: str, findings: Iterable[Finding], file: Document) -> tuple[str, list[Finding]]:
    """The text with the fixes of findings made, and the findings. One that touches another's span waits."""
    starts = [0, *accumulate(len(line) for line in StringIO(text, newline="\n"))]
    taken: list[tuple[int, int, str]] = []
    made = []
    for finding in findings:
        assert finding.fix is not None
        spans = sorted(_spans(finding.fix, starts, file))
        if all(end < begin or start > stop for start, end, _ in spans for begin, stop, _ in taken):
            taken += spans
            made.append(finding)
    for start, end, new in sorted(taken, reverse=True):
        text = text[:start] + new + text[end:]
    return text, made


def _spans(fix: Fix, starts: list[int], file: Document) -> Iterable[tuple[int, int, str]]:
    for edit in fix.edits:
        place = file.joined(edit.location)
        start = starts[place.line - 1] + place.column - 1
        yield start, starts[place.end_line - 1] + place.end_column - 1, edit.text
