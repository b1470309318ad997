"""The user's own results are the same with and without the flag."""

from __future__ import annotations

import re

import pytest

from tests.pytest_plugin.conftest import Project

# The outer run may have imported a module that pytest would rewrite.
STRICT = ("-W", "error", "-W", "ignore::pytest.PytestAssertRewriteWarning")

MIXED = """\
import random

import numpy
import pytest
import torch
from torch import nn
from model import build


def test_passes():
    build()(torch.randn(2, 5, 22))


def test_fails():
    build()(torch.randn(2, 5, 22))
    assert 1 == 2


@pytest.mark.xfail(strict=True)
def test_fails_as_expected():
    build()(torch.randn(2, 5, 22, 3))


@pytest.mark.skip
def test_is_skipped():
    pass


@pytest.fixture
def broken():
    raise ValueError("no such data")


def test_errs(broken):
    pass
"""

STREAMS = """\
import random

import numpy
import pytest
import torch
from model import build


@pytest.fixture(autouse=True, scope="module")
def seeded():
    random.seed(0), numpy.random.seed(0), torch.manual_seed(0)


def test_first():
    module = build().train()
    module(torch.randn(2, 5, 22))
    global kept
    kept = module


def test_second():
    print("drawn", random.random(), numpy.random.rand(), torch.rand(()).item())
    print("state", kept.training, torch.is_grad_enabled(), torch.get_default_dtype(), kept(torch.ones(1, 3, 22)).sum())
"""


def outcomes(result: pytest.RunResult) -> dict[str, str]:
    """Outcome of each of the user's tests."""
    lines = re.findall(r"^(test_model\.py::\w+) (\w+)", result.stdout.str(), re.MULTILINE)
    return dict(lines)


def test_every_outcome_stays(pytester: pytest.Pytester, project: Project) -> None:
    project("broken", test=MIXED)
    plain = pytester.runpytest("-v")
    guarded = pytester.runpytest("-v", "--attn-guard", "-m", "not attn_guard")
    assert outcomes(plain) == {
        "test_model.py::test_passes": "PASSED",
        "test_model.py::test_fails": "FAILED",
        "test_model.py::test_fails_as_expected": "XFAIL",
        "test_model.py::test_is_skipped": "SKIPPED",
        "test_model.py::test_errs": "ERROR",
    }
    assert outcomes(guarded) == outcomes(plain)
    plain.assert_outcomes(passed=1, failed=1, xfailed=1, skipped=1, errors=1)
    guarded.assert_outcomes(passed=1, failed=2, xfailed=1, skipped=1, errors=1, deselected=1)


def test_random_streams_modes_and_modules_stay(pytester: pytest.Pytester, project: Project) -> None:
    project("fixed", test=STREAMS)
    plain = pytester.runpytest("-s")
    guarded = pytester.runpytest("-s", "--attn-guard")
    drawn = re.findall(r"(?:drawn|state) .*", plain.stdout.str(), re.MULTILINE)
    assert len(drawn) == 2
    assert re.findall(r"(?:drawn|state) .*", guarded.stdout.str(), re.MULTILINE) == drawn
    guarded.stdout.fnmatch_lines(["probed 1 module, 1 attention site*"])


def test_nothing_stays_wrapped_after_the_run(pytester: pytest.Pytester, project: Project) -> None:
    from torch import nn

    original = nn.Module.__call__
    project("fixed")
    pytester.runpytest("--attn-guard")
    assert nn.Module.__call__ is original


def test_warnings_inside_a_probe_are_no_errors(
    pytester: pytest.Pytester, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    import warnings
    from typing import Any

    import attn_guard.probe.check

    real = attn_guard.probe.check.check

    def warning_check(*args: Any, **kwargs: Any) -> Any:
        warnings.warn("from inside", UserWarning, stacklevel=1)
        return real(*args, **kwargs)

    monkeypatch.setattr(attn_guard.probe.check, "check", warning_check)
    project("fixed")
    result = pytester.runpytest("--attn-guard", *STRICT)
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("note: *")


@pytest.mark.slow
def test_compiled_modules_are_left_to_the_compiler(pytester: pytest.Pytester, project: Project) -> None:
    test = """\
import torch
from model import build


def test_compiled_module():
    module = torch.compile(build(), backend="eager", fullgraph=True)
    module(torch.randn(2, 5, 22))


def test_compiled_function():
    module = build()

    @torch.compile(backend="eager", fullgraph=True)
    def call(x):
        return module(x)

    call(torch.randn(2, 5, 22))
"""
    project("broken", test=test)
    result = pytester.runpytest_subprocess("--attn-guard", "-m", "not attn_guard", *STRICT)
    result.assert_outcomes(passed=2, deselected=1)
    result.stdout.fnmatch_lines(["note: OptimizedModule: compiled modules are not probed"])
