"""The documentation page of a gotcha, as `attn-guard explain` prints it and as the docs site shows it."""

from __future__ import annotations

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
