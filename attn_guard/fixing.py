"""``attn-guard lint --fix`` and ``--diff``: which files are mended, and what changes in them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from attn_guard.errors import UsageError
from attn_guard.findings import Report
from attn_guard.lint.files import decode, is_notebook
from attn_guard.lint.mend import Mended, mend
from attn_guard.lint.rewrite import replace_file
from attn_guard.notebook import Notebook

JudgeFile = Callable[[str, bytes], Report]


@dataclass(frozen=True)
class Change:
    """A file, as it is and as it would be."""

    path: str
    before: bytes
    mended: Mended

    def write(self) -> None:
        """Puts the mended content in the place of the file. Raises `UsageError` where the file has changed
        meanwhile."""
        path = Path(self.path)
        if path.read_bytes() != self.before:
            raise UsageError(f"{self.path}: has changed while it was read; nothing was written")
        replace_file(path, self.mended.content)

    def diff(self) -> str:
        """The difference, in the form that ``patch`` reads; of a notebook, cell by cell."""
        before, after = (_parts(content, self.path) for content in (self.before, self.mended.content))
        lines = (
            difflib.unified_diff(old, new, name, name, lineterm="")
            for (name, old), (_, new) in zip(before, after, strict=True)
        )
        return "\n".join(chain.from_iterable(lines))


def changes(
    report: Report, judge: JudgeFile, *, with_unsafe: bool = False, given: bytes | None = None
) -> Iterator[Change]:
    """What the fixes of a report would change, file by file. ``given`` is the content of what is not on the disk."""
    fixable = (found.location.path for found in report.findings if found.fix and (found.fix.safe or with_unsafe))
    for path in dict.fromkeys(fixable):
        content = Path(path).read_bytes() if given is None else given
        mended = mend(content, path, partial(judge, path), with_unsafe=with_unsafe)
        if mended.fixed:
            yield Change(path, content, mended)


def left(report: Report, made: Iterable[Change]) -> Report:
    """What is found once the changes are made."""
    mended = {change.path: change.mended.report.findings for change in made}
    kept = [found for found in report.findings if found.location.path not in mended]
    kept += [found for findings in mended.values() for found in findings]
    return replace(report, findings=tuple(sorted(kept, key=lambda found: found.sort_key)))


def _parts(content: bytes, path: str) -> list[tuple[str, list[str]]]:
    """The lines of a file, or of each cell of a notebook, by name."""
    if is_notebook(path):
        return [(f"{path}:cell {cell.number}", cell.lines) for cell in Notebook(content).cells]
    return [(path, decode(content).splitlines())]
