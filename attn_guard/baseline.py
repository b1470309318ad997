"""Findings that a project has accepted for now: a file that is committed, and that later runs are held against.

An accepted finding is known by its path, its code and the text of its line, so that it stays accepted when lines move,
and comes back when its line is edited. The file is JSON, one entry a line, sorted, so that it reads well in a diff.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attn_guard.errors import UsageError
from attn_guard.findings import Finding, Report
from attn_guard.fingerprint import line_text, relative

VERSION = 1


@dataclass(frozen=True, order=True, slots=True)
class Accepted:
    """What an accepted finding is known by. ``path`` counts from the folder of the baseline file."""

    path: str
    code: str
    line: str

    @classmethod
    def of(cls, finding: Finding, root: Path) -> Accepted:
        return cls(relative(finding.location.path, root), finding.code, line_text(finding))


@dataclass(frozen=True)
class Baseline:
    """The accepted findings of a project; of equal ones, how many."""

    root: Path
    accepted: Counter[Accepted] = field(default_factory=Counter)

    @classmethod
    def of(cls, report: Report, file: Path) -> Baseline:
        """A baseline that accepts every failing finding of a report."""
        root = file.resolve().parent
        return cls(root, Counter(Accepted.of(finding, root) for finding in report.findings if finding.fails))

    @classmethod
    def read(cls, file: Path) -> Baseline:
        """Raises `UsageError` where the file is missing or is no baseline."""
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            entries = _entries(document)
        except OSError as error:
            raise UsageError(
                f"{file}: {error.strerror}; --write-baseline writes one that accepts what there is now"
            ) from None
        except (ValueError, TypeError, KeyError):
            raise UsageError(f"{file}: not a baseline of attn-guard; write it anew with --write-baseline") from None
        return cls(file.resolve().parent, Counter(entries))

    def write(self, file: Path) -> None:
        entries = sorted(self.accepted.elements())
        rows = ",\n".join(
            f"    {json.dumps({'path': entry.path, 'code': entry.code, 'line': entry.line}, ensure_ascii=False)}"
            for entry in entries
        )
        body = f"[\n{rows}\n  ]" if rows else "[]"
        file.write_text(f'{{\n  "version": {VERSION},\n  "accepted": {body}\n}}\n', encoding="utf-8")

    def apply(self, report: Report) -> Report:
        """The report without accepted findings; these go to ``suppressed``."""
        left = Counter(self.accepted)
        kept: list[Finding] = []
        silenced: list[Finding] = []
        for finding in report.findings:
            known = Accepted.of(finding, self.root)
            (silenced if left[known] > 0 else kept).append(finding)
            left[known] -= 1
        return replace(report, findings=tuple(kept), suppressed=(*report.suppressed, *silenced))


def _entries(document: Any) -> list[Accepted]:
    if document["version"] != VERSION:
        raise ValueError
    return [Accepted(str(entry["path"]), str(entry["code"]), str(entry["line"])) for entry in document["accepted"]]
