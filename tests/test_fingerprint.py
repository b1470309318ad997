"""Findings are told apart by path, code and the text of their line."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_guard.findings import Finding, Location
from attn_guard.fingerprint import fingerprints, line_text, relative
from tests.report.reports import SOURCE, finding


def at(path: Path, line: int, code: str = "ATN201") -> Finding:
    return finding(str(path), code=code, location=Location(str(path), line))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    return path


def test_lines_codes_and_files_tell_findings_apart(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(SOURCE)
    found = [at(model, 2), at(model, 3), at(model, 2, "ATN101"), at(other, 2)]
    assert len(set(fingerprints(found, tmp_path))) == 4


def test_the_same_text_twice_is_numbered_in_order(model: Path, tmp_path: Path) -> None:
    model.write_text("a = 1\na = 1\n")
    first, second = fingerprints([at(model, 1), at(model, 2)], tmp_path)
    assert first != second
    assert fingerprints([at(model, 2)], tmp_path) == [first]


def test_indentation_and_place_in_the_file_do_not_matter(model: Path, tmp_path: Path) -> None:
    before = fingerprints([at(model, 2)], tmp_path)
    model.write_text("\n\n" + SOURCE.replace("    ", "        "))
    assert fingerprints([at(model, 4)], tmp_path) == before


def test_a_copy_of_the_project_gives_the_same(tmp_path: Path) -> None:
    marks = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "model.py"
        path.write_text(SOURCE)
        marks.append(fingerprints([at(path, 2)], tmp_path / name))
    assert marks[0] == marks[1]


def test_a_file_that_is_gone_has_no_line() -> None:
    assert line_text(finding("gone.py")) == ""


def test_paths_outside_stay_whole(tmp_path: Path) -> None:
    outside = tmp_path / "x.py"
    assert relative(str(outside), tmp_path / "inside") == outside.as_posix()
    assert relative(str(tmp_path / "a" / "b.py"), tmp_path) == "a/b.py"
