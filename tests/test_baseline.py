"""Findings that a project has accepted for now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attn_guard.baseline import Baseline
from attn_guard.errors import UsageError
from attn_guard.findings import Finding, Location, Report, Severity
from tests.report.reports import SOURCE, finding


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "src" / "model.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    return path


def at(path: Path, line: int, code: str = "ATN201", severity: Severity = Severity.ERROR) -> Finding:
    return finding(str(path), code=code, severity=severity, location=Location(str(path), line))


def kept(file: Path, *found: Finding) -> list[int]:
    """The lines of the findings that a baseline file does not accept."""
    return [finding.location.line for finding in Baseline.read(file).apply(Report(findings=found)).findings]


@pytest.fixture
def file(model: Path, tmp_path: Path) -> Path:
    """A baseline that accepts what stands on line 2."""
    path = tmp_path / "baseline.json"
    Baseline.of(Report(findings=(at(model, 2),)), path).write(path)
    return path


def test_what_is_accepted_goes_to_suppressed(model: Path, file: Path) -> None:
    report = Baseline.read(file).apply(Report(findings=(at(model, 2), at(model, 3))))
    assert [found.location.line for found in report.findings] == [3]
    assert [found.location.line for found in report.suppressed] == [2]


def test_it_stays_accepted_when_lines_are_added_above(model: Path, file: Path) -> None:
    model.write_text("import torch\n\n\n" + SOURCE)
    assert kept(file, at(model, 5)) == []


def test_it_comes_back_when_its_line_is_edited(model: Path, file: Path) -> None:
    model.write_text(SOURCE.replace("query @ key.transpose(-2, -1)", "key @ query.transpose(-2, -1)"))
    assert kept(file, at(model, 2)) == [2]


def test_another_code_on_the_line_is_new(model: Path, file: Path) -> None:
    assert kept(file, at(model, 2, "ATN101")) == [2]


def test_as_many_as_were_accepted_and_no_more(model: Path, file: Path) -> None:
    model.write_text(SOURCE + SOURCE)
    assert kept(file, at(model, 2), at(model, 8)) == [8]


def test_remarks_need_no_acceptance(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    Baseline.of(Report(findings=(at(model, 2, severity=Severity.INFO),)), path).write(path)
    assert json.loads(path.read_text())["accepted"] == []


def test_the_file_reads_well_and_is_the_same_whatever_the_order(model: Path, tmp_path: Path) -> None:
    texts = []
    for found in ((at(model, 3), at(model, 2)), (at(model, 2), at(model, 3))):
        path = tmp_path / "baseline.json"
        Baseline.of(Report(findings=found), path).write(path)
        texts.append(path.read_text())
    assert texts[0] == texts[1]
    assert texts[0].splitlines()[3] == (
        '    {"path": "src/model.py", "code": "ATN201", "line": "scores = query @ key.transpose(-2, -1)"},'
    )


def test_paths_count_from_the_folder_of_the_file(
    model: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    assert kept(file, at(Path("model.py"), 2)) == []


def test_a_missing_file_says_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.json: No such file.*--write-baseline"):
        Baseline.read(tmp_path / "gone.json")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2, "accepted": []}', '{"version": 1, "accepted": [1]}'])
def test_what_is_no_baseline_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"baseline\.json: not a baseline of attn-guard"):
        Baseline.read(path)
