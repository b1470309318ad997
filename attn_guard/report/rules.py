"""What a report says about a code: its name, summary, explanation and fix."""

from __future__ import annotations

from dataclasses import dataclass

from attn_guard.findings import Severity
from attn_guard.gotchas.registry import entries


@dataclass(frozen=True, slots=True)
class Rule:
    """A code as reports describe it. ``text`` is the explanation in prose, without headings or examples."""

    code: str
    name: str
    summary: str
    text: str
    fix: str
    severity: Severity


# The codes of the tool itself, which no gotcha file describes.
_OWN = {
    "ATN900": Rule(
        "ATN900",
        "syntax-error",
        "file could not be parsed",
        "Nothing in this file was checked; the rest of the run went on.",
        "correct the syntax",
        Severity.ERROR,
    ),
    "ATN903": Rule(
        "ATN903",
        "not-probed",
        "module could not be called",
        "Nothing is known about the attention of this module.",
        "pass the inputs of a real call",
        Severity.INFO,
    ),
}


def rule_of(code: str) -> Rule:
    """The rule of a code; of one that nobody knows, a rule that says no more than the code."""
    entry = entries().get(code)
    if entry is None:
        return _OWN.get(code, Rule(code, code.lower(), code, code, code, Severity.WARNING))
    gotcha = entry.gotcha
    what = entry.page.partition("What it does\n------------\n")[2].partition("\n\nWhy is this bad")[0]
    return Rule(code, gotcha.name, gotcha.summary, " ".join(what.split()), gotcha.fix, gotcha.severity)
