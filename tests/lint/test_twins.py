"""Each broken twin is flagged with exactly its code, on a marked line; each fixed twin is clean under all gotchas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attn_guard.findings import Detector, Severity
from attn_guard.gotchas.registry import Entry, entries
from attn_guard.lint.run import lint_paths, lint_source

READ_BY_LINT = [entry for entry in entries().values() if Detector.LINT in entry.detectors]


def wanted(entry: Entry) -> list[str]:
    """All gotchas, and that of the twin, which may be one that runs on request only."""
    return ["ALL", entry.gotcha.code]


def marked_lines(path: Path, code: str) -> set[int]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if f"# <- {code}" in line}


@pytest.mark.parametrize("entry", READ_BY_LINT, ids=lambda entry: entry.gotcha.code)
def test_broken_twin_is_flagged_with_its_code_on_a_marked_line(entry: Entry) -> None:
    report = lint_paths([entry.broken], select=wanted(entry), preview=True)
    is_remark = entry.gotcha.severity is Severity.INFO
    found = [finding for finding in report if finding.fails or is_remark]
    assert found, f"{entry.broken.name} is not flagged"
    assert {finding.code for finding in found} == {entry.gotcha.code}
    assert {finding.location.line for finding in found} <= marked_lines(entry.broken, entry.gotcha.code)


@pytest.mark.parametrize("entry", READ_BY_LINT, ids=lambda entry: entry.gotcha.code)
def test_fixed_twin_is_clean_under_all_gotchas(entry: Entry) -> None:
    assert lint_paths([entry.fixed], select=wanted(entry), preview=True).findings == ()


@pytest.mark.parametrize("entry", READ_BY_LINT, ids=lambda entry: entry.gotcha.code)
def test_comments_and_blank_lines_change_nothing_but_line_numbers(entry: Entry) -> None:
    source = entry.broken.read_text(encoding="utf-8")
    spread = "\n".join(f"# softmax of a mask\n\n{line}" if line[:1].isalpha() else line for line in source.split("\n"))
    plain, other = (lint_source(text, "twin.py", preview=True) for text in (source, spread))
    assert [(f.code, f.message, f.location.column) for f in plain] == [
        (f.code, f.message, f.location.column) for f in other
    ]


@pytest.mark.parametrize("entry", READ_BY_LINT, ids=lambda entry: entry.gotcha.code)
@pytest.mark.parametrize(("old", "new"), [("scores", "zzz"), ("weights", "yyy"), ("context", "xxx"), ("batch", "www")])
def test_renaming_local_variables_changes_nothing(entry: Entry, old: str, new: str) -> None:
    source = entry.broken.read_text(encoding="utf-8")
    plain = lint_source(source, "twin.py", preview=True)
    renamed = lint_source(re.sub(rf"\b{old}\b", new, source), "twin.py", preview=True)
    assert [(f.code, f.location.line) for f in plain] == [(f.code, f.location.line) for f in renamed]


def test_every_finding_spans_its_expression() -> None:
    for entry in READ_BY_LINT:
        for finding in lint_paths([entry.broken], preview=True):
            place = finding.location
            assert place.column >= 1
            assert (place.end_line, place.end_column) > (place.line, place.column)
            assert finding.detector is Detector.LINT
            assert finding.severity is not Severity.INFO or entry.gotcha.severity is Severity.INFO
