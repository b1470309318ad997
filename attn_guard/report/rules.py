"""What a report says about a code: its name, summary, explanation and fix."""

from __future__ import annotations

from dataclasses import dataclass

from attn_guard.explain import TOOL_PAGES
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


def rule_of(code: str) -> Rule:
    """The rule of a code; of one that nobody knows, a rule that says no more than the code."""
    entry = entries().get(code)
    if entry is not None:
        gotcha = entry.gotcha
        what = entry.page.partition("What it does\n------------\n")[2].partition("\n\nWhy is this bad")[0]
        return Rule(code, gotcha.name, gotcha.summary, " ".join(what.split()), gotcha.fix, gotcha.severity)
    name, meaning, remedy = TOOL_PAGES.get(code, (code.lower(), code, code))
    return Rule(code, name, meaning.partition(". ")[0].rstrip("."), meaning, remedy, Severity.WARNING)
