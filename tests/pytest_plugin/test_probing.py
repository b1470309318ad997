"""Modules that the user's tests run are probed with the tests' own inputs."""

from __future__ import annotations

import pytest

from tests.pytest_plugin.conftest import TEST, Project

TESTS_ONLY = ("--attn-guard", "-m", "not attn_guard")

CAUSAL_BY_MARKER = """\
import pytest
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(22, 66)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(q, k, v)


def test_without_a_promise():
    Attention()(torch.randn(2, 5, 22))


@pytest.mark.attn_guard(causal=True, reason="a decoder")
def test_with_a_promise():
    Attention()(torch.randn(2, 5, 22))
"""


def test_a_broken_module_fails_the_run_and_leaves_its_test_passed(pytester: pytest.Pytester, project: Project) -> None:
    project("broken")
    result = pytester.runpytest(*TESTS_ONLY)
    result.assert_outcomes(passed=1, failed=1, deselected=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*error[[]ATN101[]] missing-scale*",
            "*--> model.py:*",
            "FAILED test_model.py::test_forward_keeps_the_shape::attn-guard[[]*[]] - ATN101 missing-scale*",
        ]
    )


def test_a_correct_module_is_silent(pytester: pytest.Pytester, project: Project) -> None:
    project("fixed")
    result = pytester.runpytest(*TESTS_ONLY)
    result.assert_outcomes(passed=1, deselected=1)
    assert result.ret == pytest.ExitCode.OK


def test_the_first_test_that_ran_a_module_gets_its_finding_once(pytester: pytest.Pytester, project: Project) -> None:
    project("broken", test=TEST + "\n\ndef test_again():\n    build()(torch.randn(1, 3, 22))\n")
    result = pytester.runpytest(*TESTS_ONLY)
    result.assert_outcomes(passed=2, failed=1, deselected=1)
    result.stdout.fnmatch_lines(["FAILED test_model.py::test_forward_keeps_the_shape::attn-guard*"])


def test_modules_are_probed_before_fixtures_are_torn_down(pytester: pytest.Pytester, project: Project) -> None:
    test = """\
import pytest
import torch
from model import build


@pytest.fixture
def module():
    module = build()
    yield module
    for parameter in module.parameters():
        parameter.data = torch.empty(0)


def test_forward(module):
    module(torch.randn(2, 5, 22))
"""
    project("broken", test=test)
    pytester.runpytest(*TESTS_ONLY).assert_outcomes(passed=1, failed=1, deselected=1)


def test_promises_come_from_the_marker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CAUSAL_BY_MARKER)
    result = pytester.runpytest("--attn-guard")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["FAILED *::test_with_a_promise::attn-guard[[]Attention[]] - ATN214 causal-leak*"])


def test_the_marker_can_ignore_codes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CAUSAL_BY_MARKER.replace("causal=True,", "causal=True, ignore=['ATN214'],"))
    pytester.runpytest("--attn-guard").assert_outcomes(passed=3)


@pytest.mark.parametrize("arguments", ["caussal=True", "padding_side='up'", "True"])
def test_a_bad_marker_is_a_usage_error(pytester: pytest.Pytester, arguments: str) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.attn_guard({arguments})\ndef test_one(): pass\n")
    assert pytester.runpytest("--attn-guard").ret == pytest.ExitCode.USAGE_ERROR


def test_inputs_are_those_from_before_the_call(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch
        from torch import nn

        class InPlace(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = nn.MultiheadAttention(22, 2, batch_first=True)

            def forward(self, x, *, keep):
                out, _ = self.attention(x, x, x, key_padding_mask=~keep)
                keep.zero_()
                return out

        def test_forward():
            keep = torch.ones(2, 5, dtype=torch.bool)
            keep[1, 3:] = False
            InPlace()(torch.randn(2, 5, 22), keep=keep)
        """
    )
    result = pytester.runpytest("--attn-guard")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["*InPlace: *"])


def test_an_error_inside_a_probe_is_a_note(
    pytester: pytest.Pytester, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_check(*args: object, **kwargs: object) -> None:
        raise RuntimeError("the probe itself is at fault")

    import attn_guard.probe.check

    monkeypatch.setattr(attn_guard.probe.check, "check", broken_check)
    project("broken")
    result = pytester.runpytest(*TESTS_ONLY)
    result.assert_outcomes(passed=1, deselected=1)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["note: *: probe failed: RuntimeError: the probe itself is at fault"])
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_a_call_that_the_test_expects_to_raise_is_left_alone(pytester: pytest.Pytester, project: Project) -> None:
    test = """\
import pytest
import torch
from model import build


def test_wrong_width():
    with pytest.raises(RuntimeError):
        build()(torch.randn(2, 5, 21))
"""
    project("broken", test=test)
    pytester.runpytest(*TESTS_ONLY).assert_outcomes(passed=1, deselected=1)


def test_a_crash_that_a_gotcha_explains_is_explained(pytester: pytest.Pytester, project: Project) -> None:
    project("broken", "atn302_view_after_transpose", TEST.replace("22", "39"))
    result = pytester.runpytest(*TESTS_ONLY)
    result.assert_outcomes(failed=2, deselected=1)
    result.stdout.fnmatch_lines(["FAILED *::attn-guard[[]*[]] - ATN302 view-after-transpose*"])


def test_the_fixture_checks_a_module_inside_a_test(pytester: pytest.Pytester, project: Project) -> None:
    test = """\
import torch
from model import build


def test_sound(attn_guard):
    attn_guard.check(build(), (torch.randn(2, 5, 22),))


def test_sound_but_for_one_code(attn_guard):
    assert attn_guard.check(build(), ignore=["ATN101"]).ok
"""
    project("broken", test=test)
    result = pytester.runpytest()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*error[[]ATN101[]] missing-scale*"])


def test_long_sequences_are_cut_where_the_module_allows_it(pytester: pytest.Pytester, project: Project) -> None:
    project("broken", test=TEST.replace("2, 5, 22", "2, 300, 22"))
    result = pytester.runpytest(*TESTS_ONLY)
    result.stdout.fnmatch_lines(["*reproduce: Attention(float32[[]2, 13, 22[]])*"])


def test_a_module_of_one_length_is_probed_at_that_length(pytester: pytest.Pytester, project: Project) -> None:
    fixed_length = """\
import torch
from torch import nn
from model import build


class FixedLength(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.randn(30, 22))
        self.attention = build()

    def forward(self, x):
        return self.attention(x + self.positions)


def test_forward():
    FixedLength()(torch.randn(2, 30, 22))
"""
    project("broken", test=fixed_length)
    result = pytester.runpytest(*TESTS_ONLY)
    result.stdout.fnmatch_lines(["*reproduce: FixedLength(float32[[]2, 30, 22[]])*"])
