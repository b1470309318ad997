"""The documentation page of a gotcha, as `attn-guard explain` prints it and as the docs site shows it.

``python -m attn_guard.gotchas.page docs/gotchas`` writes all of them, and an index.
"""

from __future__ import annotations

import argparse
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_guard.findings import Detector
    from attn_guard.gotchas.registry import Entry

_HEADING = re.compile(r"^(?P<title>\S.*)\n-{3,}$", re.MULTILINE)


def page(entry: Entry) -> str:
    """The page in Markdown: name and code, the text of the gotcha file, its twins as Python blocks."""
    gotcha = entry.gotcha
    text = _HEADING.sub(r"## \g<title>\n", inspect.cleandoc(entry.page))
    for twin in (entry.broken, entry.fixed):
        text = text.replace(f"{{{twin.parent.name}}}", _fenced(twin))
    readers = " and ".join(_reader(entry, detector) for detector in entry.detectors)
    facts = f"Severity: {gotcha.severity}. Found by {readers}. Fix: {gotcha.fix}."
    return f"# {gotcha.name} ({gotcha.code})\n\n{facts}\n\n{text}\n"


def _fenced(twin: Path) -> str:
    return f"```python\n{twin.read_text(encoding='utf-8').rstrip()}\n```"


def _reader(entry: Entry, detector: Detector) -> str:
    return f"{detector} (preview)" if detector in entry.gotcha.preview else str(detector)


def table(link: str) -> str:
    """All gotchas as a Markdown table. ``link`` is where a page is, with ``{page}`` for its file name."""
    from attn_guard.gotchas.registry import entries

    lines = ["| code | name | found by | what is wrong |", "|---|---|---|---|"]
    for entry in entries().values():
        gotcha = entry.gotcha
        readers = ", ".join(_reader(entry, detector) for detector in entry.detectors)
        target = link.format(page=f"{entry.broken.stem}.md")
        lines.append(f"| [{gotcha.code}]({target}) | {gotcha.name} | {readers} | {gotcha.summary} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[str, str]:
    """File name → text of every page, and of the index."""
    from attn_guard.gotchas.registry import entries

    written = {f"{entry.broken.stem}.md": page(entry) for entry in entries().values()}
    return {"index.md": f"# The gotchas\n\n{table('{page}')}", **written}


def write(folder: Path) -> None:
    """Writes every page into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Writes the page of every gotcha into a folder.")
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder)
