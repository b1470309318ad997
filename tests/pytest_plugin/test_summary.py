"""The section that closes a run."""

from __future__ import annotations

import pytest

from tests.pytest_plugin.conftest import TEST, Project

PLAIN = """

class Plain(torch.nn.Module):
    def forward(self, x):
        return x


def test_plain():
    Plain()(torch.ones(2))
"""


def test_it_counts_files_modules_sites_and_codes(pytester: pytest.Pytester, project: Project) -> None:
    project("broken", test=TEST + PLAIN)
    result = pytester.runpytest("--attn-guard")
    result.stdout.fnmatch_lines(
        [
            "=* attn-guard =*",
            "linted 1 file",
            "probed 1 module, 1 attention site in *s; 1 without attention",
            "  Attention (first in test_model.py::test_forward_keeps_the_shape)",
            "found ATN101: 2",
        ]
    )


def test_a_run_without_torch_says_that_nothing_was_probed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one(): pass\n")
    result = pytester.runpytest("--attn-guard")
    result.stdout.fnmatch_lines(["linted 0 files", "probed 0 modules, 0 attention sites*"])


def test_it_is_left_out_with_no_summary(pytester: pytest.Pytester, project: Project) -> None:
    project("fixed")
    pytester.runpytest("--attn-guard", "--no-summary").stdout.no_fnmatch_line("*linted*")
