"""Annotations for GitHub Actions."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_guard.findings import Fix, Location, Report, Severity
from attn_guard.report import render
from tests.report.reports import finding


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_line_per_finding(tmp_path: Path) -> None:
    report = Report(findings=(finding(str(tmp_path / "a.py")), finding("b.py", severity=Severity.WARNING)))
    assert render(report, "github").split("\n") == [
        "::error title=ATN201 mask-after-softmax,file=a.py,line=5,col=15,endLine=5,endColumn=45"
        "::mask applied after the softmax%0Ahelp: fill the scores with -inf",
        "::warning title=ATN201 mask-after-softmax,file=b.py,line=5,col=15,endLine=5,endColumn=45"
        "::mask applied after the softmax%0Ahelp: fill the scores with -inf",
    ]


@pytest.mark.parametrize(("safe", "options"), [(True, "--fix"), (False, "--fix --unsafe-fixes")])
def test_what_can_be_mended_says_how(safe: bool, options: str) -> None:
    line = render(Report(findings=(finding(fix=Fix((), safe)),)), "github")
    assert line.endswith(f"%0Ahelp: fill the scores with -inf%0Afix: {options} mends it")


def test_remarks_are_notices() -> None:
    assert render(Report(findings=(finding(severity=Severity.INFO),)), "github").startswith("::notice ")


def test_special_characters_are_escaped() -> None:
    found = finding("a,b:c.py", message="100% of\nrows: wrong", location=Location("a,b:c.py", 3))
    line = render(Report(findings=(found,)), "github")
    assert "file=a%2Cb%3Ac.py,line=3::100%25 of%0Arows: wrong%0Ahelp" in line
    assert "\n" not in line


def test_a_span_of_several_lines_has_no_end_column() -> None:
    found = finding(location=Location("a.py", 5, 3, 7, 9))
    assert "line=5,col=3,endLine=7::" in render(Report(findings=(found,)), "github")


def test_a_finding_without_a_file_is_still_said() -> None:
    found = finding(location=Location("<probe>", 0, module="h.0"))
    assert render(Report(findings=(found,)), "github").startswith(
        "::error title=ATN201 mask-after-softmax::mask applied after the softmax (in h.0)"
    )


def test_nothing_found_says_nothing() -> None:
    assert render(Report(files=3), "github") == ""
