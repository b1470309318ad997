"""An installed but idle plugin costs nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"torch", "libcst", "numpy", "attn_guard.pytest_session", "attn_guard.probe", "attn_guard.gotchas"}

RUN = """
import sys
import pytest
code = pytest.main(sys.argv[1:])
print("imported", *sys.modules)
sys.exit(code)
"""


def imported(folder: Path, *arguments: str) -> set[str]:
    """The modules that are loaded after a run of pytest in a folder."""
    command = [sys.executable, "-c", RUN, "-p", "no:cacheprovider", *arguments]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 5), run.stdout + run.stderr
    return set(run.stdout.rpartition("imported ")[2].split())


def test_without_the_flag_nothing_heavy_is_imported(tmp_path: Path) -> None:
    modules = imported(tmp_path, "--co", "-q")
    assert "attn_guard.pytest_plugin" in modules
    assert modules.isdisjoint(HEAVY)


def test_with_the_flag_torch_is_left_to_the_users_tests(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text("def test_one(): pass\n")
    modules = imported(tmp_path, "--attn-guard", "-q")
    assert "attn_guard.pytest_session.modules" in modules
    assert "torch" not in modules


def test_the_marker_is_known_without_the_flag(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.attn_guard(causal=True)\ndef test_one(): pass\n")
    pytester.runpytest("--strict-markers").assert_outcomes(passed=1)
