"""Under pytest-xdist each finding is reported once."""

from __future__ import annotations

import pytest

from tests.pytest_plugin.conftest import TEST, Project

pytest.importorskip("xdist")


def test_two_workers_report_each_finding_once(pytester: pytest.Pytester, project: Project) -> None:
    project("broken", test=TEST + TEST.partition("\n\n\n")[2].replace("test_forward", "test_again"))
    result = pytester.runpytest_subprocess("--attn-guard", "-n", "2")
    result.assert_outcomes(passed=2, failed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["linted 1 file", "probed 1 module, 1 attention site*", "found ATN101: 2"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")
