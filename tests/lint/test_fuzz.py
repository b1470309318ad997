"""Damaged sources of any kind are answered with a report, soon."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from attn_guard.findings import Report
from attn_guard.gotchas.registry import entries
from attn_guard.lint.mend import mend
from attn_guard.lint.run import lint_source
from tests.lint.damage import damaged

SOURCES = [path for entry in entries().values() for path in (entry.broken, entry.fixed)]
SECONDS = 10.0  # of processor time; a mutant of a twin takes some hundredths


def examine(content: bytes, path: str) -> Report:
    """Lints and mends a content, and looks at what comes out."""
    start = time.process_time()
    report = lint_source(content, path, preview=True)
    mended = None
    if any(found.fix for found in report):
        mended = mend(content, path, lambda new: lint_source(new, path, preview=True), with_unsafe=True)
    assert time.process_time() - start < SECONDS
    lines = content.count(b"\n") + content.count(b"\r") + content.count(b"\\n") + 2
    for found in report:
        assert 1 <= found.location.line <= lines
        assert found.location.column >= 0
        assert found.message
    if mended is not None and "ATN900" not in report.codes:
        assert "ATN900" not in mended.report.codes
    return report


def survive(seed: int, count: int) -> None:
    chance = random.Random(seed)
    for number in range(count):
        source = chance.choice(SOURCES).read_text(encoding="utf-8")
        content = damaged(source, chance)
        try:
            examine(content, "damaged.py")
        except Exception as error:
            error.add_note(f"mutant {number} of seed {seed}: {content!r}")
            raise


def test_damaged_sources_are_answered() -> None:
    survive(seed=0, count=60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_thousands_of_damaged_sources_are_answered(seed: int) -> None:
    survive(seed, count=500)


@pytest.mark.parametrize("path", SOURCES[::25], ids=lambda path: f"{path.parent.name}-{path.stem[:6]}")
def test_a_source_that_breaks_off_anywhere_is_answered(path: Path) -> None:
    content = path.read_bytes()
    for end in range(0, len(content), max(1, len(content) // 25)):
        examine(content[:end], "part.py")


def test_damaged_notebooks_are_answered() -> None:
    chance = random.Random(0)
    for _ in range(30):
        source = chance.choice(SOURCES).read_text(encoding="utf-8")
        document = {"cells": [{"cell_type": "code", "source": source.splitlines(keepends=True)}]}
        examine(damaged(json.dumps(document, indent=1), chance), "damaged.ipynb")
        document["cells"][0]["source"] = [damaged(source, chance).decode("latin-1")]
        examine(json.dumps(document).encode(), "damaged.ipynb")
