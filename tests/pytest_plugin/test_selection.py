"""-k, -m, --lf, and the ids that pytest prints."""

from __future__ import annotations

import re

import pytest

from tests.pytest_plugin.conftest import TEST, Project

OTHER = "\n\ndef test_other():\n    pass\n"


def ran(result: pytest.RunResult) -> list[str]:
    return sorted(re.findall(r"^(\S+::\S+) (?:PASSED|FAILED)", result.stdout.str(), re.MULTILINE))


def test_lint_items_can_be_left_out(pytester: pytest.Pytester, project: Project) -> None:
    project("fixed")
    result = pytester.runpytest("--attn-guard", "-v", "-m", "not attn_guard")
    assert ran(result) == ["test_model.py::test_forward_keeps_the_shape"]


def test_lint_items_can_be_chosen_by_keyword(pytester: pytest.Pytester, project: Project) -> None:
    project("fixed")
    result = pytester.runpytest("--attn-guard", "-v", "-k", "attn-guard or other")
    assert ran(result) == ["model.py::attn-guard"]


def test_last_failed_runs_lint_items_and_tests_with_findings_again(pytester: pytest.Pytester, project: Project) -> None:
    project("broken", test=TEST + OTHER)
    pytester.runpytest("--attn-guard")
    result = pytester.runpytest("--attn-guard", "-v", "--lf")
    result.assert_outcomes(passed=1, failed=2)
    assert ran(result) == [
        "model.py::attn-guard",
        "test_model.py::test_forward_keeps_the_shape",
        "test_model.py::test_forward_keeps_the_shape::attn-guard[Attention]",
    ]


def test_the_printed_id_of_a_probe_failure_runs_its_test(pytester: pytest.Pytester, project: Project) -> None:
    project("broken", test=TEST + OTHER)
    result = pytester.runpytest("--attn-guard", "test_model.py::test_forward_keeps_the_shape::attn-guard[Attention]")
    result.assert_outcomes(passed=1, failed=1)


def test_the_first_finding_stops_a_run_that_stops_at_failures(pytester: pytest.Pytester, project: Project) -> None:
    project("broken", test=TEST + OTHER)
    result = pytester.runpytest("--attn-guard", "-m", "not attn_guard", "-x")
    result.assert_outcomes(passed=1, failed=1, deselected=1)


@pytest.mark.parametrize("option", ["-pno:cacheprovider", "--no-summary", "-pno:terminal"])
def test_other_ways_to_run_give_the_same_verdict(pytester: pytest.Pytester, project: Project, option: str) -> None:
    project("broken")
    assert pytester.runpytest("--attn-guard", option).ret == pytest.ExitCode.TESTS_FAILED


def test_junit_keeps_the_users_test_and_adds_the_finding(pytester: pytest.Pytester, project: Project) -> None:
    project("broken")
    pytester.runpytest("--attn-guard", "-m", "not attn_guard", "--junitxml=out.xml")
    xml = (pytester.path / "out.xml").read_text()
    assert 'tests="2"' in xml
    assert 'failures="1"' in xml
    assert "ATN101 missing-scale" in xml
