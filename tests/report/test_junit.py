"""JUnit XML for build servers."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from attn_guard.findings import Fix, Location, Report, Severity
from attn_guard.report import render
from tests.report.reports import finding


def suite(report: Report) -> ElementTree.Element:
    root = ElementTree.fromstring(render(report, "junit").encode())
    (only,) = root
    return only


def test_a_finding_is_a_failed_case() -> None:
    found = suite(Report(findings=(finding("gone.py"),)))
    assert (found.get("name"), found.get("tests"), found.get("failures")) == ("attn-guard", "1", "1")
    (case,) = found
    assert case.attrib == {
        "name": "ATN201 mask-after-softmax gone.py:5",
        "classname": "gone.py",
        "file": "gone.py",
        "line": "5",
    }
    (failure,) = case
    assert failure.attrib == {"message": "mask applied after the softmax", "type": "ATN201"}
    assert "help: fill the scores with -inf" in (failure.text or "")


@pytest.mark.parametrize(("safe", "options"), [(True, "--fix"), (False, "--fix --unsafe-fixes")])
def test_what_can_be_mended_says_how(safe: bool, options: str) -> None:
    shown = suite(Report(findings=(finding("gone.py", fix=Fix((), safe)),)))[0][0].text or ""
    assert shown.endswith(f"help: fill the scores with -inf\n  fix: {options} mends it")


def test_a_remark_is_a_case_that_passes() -> None:
    found = suite(Report(findings=(finding("gone.py", severity=Severity.INFO),)))
    assert found.get("failures") == "0"
    assert [child.tag for child in found[0]] == ["system-out"]


def test_nothing_found_is_one_case_that_passes() -> None:
    found = suite(Report(files=2))
    assert (found.get("tests"), found.get("failures")) == ("1", "0")
    assert [len(case) for case in found] == [0]


def test_text_that_xml_cannot_hold_is_replaced() -> None:
    found = suite(Report(findings=(finding("gone.py", message="null \x00 and <tag> & ✗"),)))
    failure = found[0][0]
    assert failure.get("message") == "null \ufffd and <tag> & ✗"


def test_a_finding_without_a_file_is_known_by_its_name() -> None:
    (case,) = suite(Report(findings=(finding(location=Location("<probe>", 0)),)))
    assert case.get("name") == "ATN201 mask-after-softmax <probe>"
    assert case.get("line") is None
