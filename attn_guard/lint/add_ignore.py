"""Writes the comments that silence findings into source text."""

from __future__ import annotations

import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from attn_guard.findings import Finding
from attn_guard.lint.documents import Document

_BETWEEN = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT}
_OURS = re.compile(r"(#\s*attn-guard:\s*ignore\[)([^\]]*)(\])")


def ignoring(file: Document, findings: Iterable[Finding], reason: str = "") -> str:
    """The text of a file with comments that silence the findings in it."""
    return with_ignores(file.text, [replace(f, location=file.joined(f.location)) for f in findings], reason)


def with_ignores(text: str, findings: Iterable[Finding], reason: str = "") -> str:
    """The text with ``# attn-guard: ignore[CODE] reason`` at the end of each statement that a finding blames.

    Codes join a comment of ours that is there already. Line ends and everything else stay as they are.
    """
    lines = list(io.StringIO(text, newline=""))
    ends = _ends(text)
    wanted: defaultdict[int, set[str]] = defaultdict(set)
    for finding in findings:
        if 1 <= finding.location.line <= len(lines):
            wanted[ends.get(finding.location.line, finding.location.line)].add(finding.code)
    for line, codes in wanted.items():
        lines[line - 1] = _with_codes(lines[line - 1], codes, reason)
    return "".join(lines)


def _with_codes(line: str, codes: set[str], reason: str) -> str:
    present = _OURS.search(line)
    if present is not None:
        known = [code for code in re.split(r"[\s,]+", present[2]) if code]
        joined = ", ".join([*known, *sorted(codes - {*known})])
        return f"{line[: present.start()]}{present[1]}{joined}{present[3]}{line[present.end() :]}"
    end = line[len(line.rstrip("\r\n")) :]
    comment = f"# attn-guard: ignore[{', '.join(sorted(codes))}] {reason}".rstrip()
    return f"{line.rstrip()}  {comment}{end}"


def _ends(text: str) -> dict[int, int]:
    """Line → the last line of the statement that it belongs to. A text that breaks off keeps what was read."""
    found: dict[int, int] = {}
    start = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NEWLINE and start:
                found.update(dict.fromkeys(range(start, token.start[0] + 1), token.start[0]))
                start = 0
            elif token.type not in _BETWEEN:
                start = start or token.start[0]
    except (tokenize.TokenError, SyntaxError):
        return found
    return found
