"""The Code Quality report of GitLab."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attn_guard.findings import Location, Report, Severity
from attn_guard.report import render
from tests.report.reports import SOURCE, finding


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    return path


def issues(report: Report) -> list[dict[str, Any]]:
    written: list[dict[str, Any]] = json.loads(render(report, "gitlab"))
    return written


def test_an_issue(model: Path) -> None:
    (issue,) = issues(Report(findings=(finding(str(model)),)))
    assert len(issue.pop("fingerprint")) == 32
    assert issue == {
        "check_name": "ATN201",
        "description": "ATN201 mask-after-softmax: mask applied after the softmax; fill the scores with -inf",
        "severity": "major",
        "location": {
            "path": "model.py",
            "positions": {"begin": {"line": 5, "column": 15}, "end": {"line": 5, "column": 45}},
        },
    }


@pytest.mark.parametrize(("severity", "word"), [(Severity.WARNING, "minor"), (Severity.INFO, "info")])
def test_severities(model: Path, severity: Severity, word: str) -> None:
    assert issues(Report(findings=(finding(str(model), severity=severity),)))[0]["severity"] == word


def test_fingerprints_are_unique_even_for_equal_findings(model: Path) -> None:
    found = issues(Report(findings=(finding(str(model)),) * 3))
    assert len({issue["fingerprint"] for issue in found}) == 3


def test_what_has_no_file_stays_out() -> None:
    assert issues(Report(findings=(finding(location=Location("<probe>", 0)),))) == []


def test_nothing_found_is_an_empty_list() -> None:
    assert issues(Report(files=3)) == []
