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


def test_the_sites_of_a_deep_model_are_cut(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch
        from torch import nn

        class Stack(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(nn.MultiheadAttention(22, 2, batch_first=True) for _ in range(6))

            def forward(self, x):
                for layer in self.layers:
                    x = x + layer(x, x, x)[0]
                return x

        def test_forward():
            Stack()(torch.randn(2, 5, 22))
        """
    )
    result = pytester.runpytest("--attn-guard")
    result.stdout.fnmatch_lines(
        ["  Stack: layers.0, layers.1, layers.2, layers.3 and 2 more (first in *::test_forward)"]
    )
