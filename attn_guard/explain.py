"""What the codes stand for: the list of them, and the page of each."""

from __future__ import annotations

from attn_guard.errors import UsageError
from attn_guard.gotchas.page import page
from attn_guard.gotchas.registry import entries

TOOL_PAGES = {
    "ATN900": (
        "syntax-error",
        "A file could not be parsed as Python, so nothing in it was read. The rest of the run went on.",
        "Mend the syntax. If the file is not meant to be Python, list it under `exclude` in `[tool.attn-guard]`.",
    ),
    "ATN901": (
        "unused-suppression",
        "A comment silences a code that is not found on its line.",
        "Take the comment away, so that it cannot hide the next mistake.",
    ),
    "ATN902": (
        "unknown-code",
        "A comment silences a code that does not exist.",
        "Look the code up with `attn-guard rules`.",
    ),
    "ATN903": (
        "not-probed",
        "A module could not be called, so nothing is known about it. The finding says what was tried.",
        "Pass the inputs of a real call: `attn_guard.check(module, args, kwargs)`. "
        "Under `pytest --attn-guard` they are taken from your own tests.",
    ),
}


def explain(code: str) -> str:
    """The documentation page of a code or of a name, in Markdown. Raises `UsageError` for an unknown one."""
    wanted = code.strip()
    for entry in entries().values():
        if wanted.upper() == entry.gotcha.code or wanted.lower() == entry.gotcha.name:
            return page(entry)
    for known, (name, meaning, remedy) in TOOL_PAGES.items():
        if wanted.upper() == known or wanted.lower() == name:
            return f"# {name} ({known})\n\n{meaning}\n\n## What to do\n\n{remedy}\n"
    raise UsageError(f"unknown code {code!r}; `attn-guard rules` lists the codes there are")


def rules() -> str:
    """One line per code: name, severity, which readers find it, and what is wrong."""
    rows: list[tuple[str, ...]] = [
        (entry.gotcha.code, entry.gotcha.name, entry.gotcha.severity, ", ".join(entry.detectors), entry.gotcha.summary)
        for entry in entries().values()
    ]
    rows += [(code, name, "", "", meaning.partition(",")[0]) for code, (name, meaning, _) in TOOL_PAGES.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]) for row in rows
    )
