"""Tells findings apart in a way that outlives edits elsewhere in the file.

A finding is known by its path, its code and the text of its line. Where several share all three, they are numbered in
order.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from attn_guard.findings import Finding
from attn_guard.lines import lines_around


def fingerprints(findings: Iterable[Finding], root: Path | None = None) -> list[str]:
    """One fingerprint per finding, in order, each of them unique.

    Paths inside ``root`` (the current folder) count from there, so that a copy elsewhere gives the same.
    """
    inside = Path.cwd() if root is None else root
    seen: Counter[tuple[str, str, str]] = Counter()
    found = []
    for finding in findings:
        identity = (relative(finding.location.path, inside), finding.code, line_text(finding))
        found.append(hashlib.sha256("\0".join((*identity, str(seen[identity]))).encode()).hexdigest()[:32])
        seen[identity] += 1
    return found


def relative(path: str, root: Path) -> str:
    """A path from ``root``, with forward slashes; as it is where it lies elsewhere."""
    try:
        return Path(path).resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return Path(path).as_posix()


def line_text(finding: Finding) -> str:
    """The line that a finding blames, without the space around it; "" where it cannot be read."""
    lines = lines_around(finding.location)
    number = finding.location.line
    return lines[number - 1].strip() if 1 <= number <= len(lines) else ""
