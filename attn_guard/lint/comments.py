"""Looks at the comments that silence findings: codes that nobody knows, and codes that silence nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attn_guard.findings import Finding, Location, Severity
from attn_guard.gotchas.registry import TOOL_CODES, entries
from attn_guard.lint.plan import UNKNOWN_CODE, UNUSED_SUPPRESSION, Plan
from attn_guard.suppressions import Suppression, Suppressions


def comment_findings(path: str, comments: Suppressions, silenced: Sequence[Finding], plan: Plan) -> Iterator[Finding]:
    """ATN902 for a code that does not exist; ATN901 for one that silences none of ``silenced``, where that is
    certain."""
    for comment in comments.all:
        known = comment.code in entries() or comment.code in TOOL_CODES
        ours = comment.code.startswith("ATN")
        if not known and (ours or not comment.is_noqa):
            yield _unknown(path, comment)
        elif comment.code in plan.certain and not any(comment.holds(f.code, f.location.line) for f in silenced):
            yield _finding(
                path,
                comment,
                UNUSED_SUPPRESSION,
                "unused-suppression",
                f"{comment.code} is silenced here, but not found",
                "remove it",
            )


def _unknown(path: str, comment: Suppression) -> Finding:
    import difflib  # late: most comments name codes that exist

    near = difflib.get_close_matches(comment.code, [*entries(), *TOOL_CODES], n=1)
    hint = f"did you mean {near[0]}?" if near else "`attn-guard rules` lists the codes there are"
    return _finding(path, comment, UNKNOWN_CODE, "unknown-code", f"there is no code {comment.code}", hint)


def _finding(path: str, comment: Suppression, code: str, name: str, message: str, help: str) -> Finding:
    end = comment.column + len(comment.code)
    place = Location(path, comment.line, comment.column, comment.line, end)
    return Finding(code, name, Severity.WARNING, message, place, help)
