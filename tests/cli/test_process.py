"""The command as a process: version, closed pipes, encodings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import attn_guard
from attn_guard.gotchas.registry import examples

COMMAND = [sys.executable, "-m", "attn_guard"]


def test_the_version_is_that_of_the_package() -> None:
    run = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == f"attn-guard {attn_guard.__version__}\n"


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    run = subprocess.run([*COMMAND, "rules"], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert run.stderr == ""
    assert run.returncode == 0


def test_a_terminal_without_unicode_gets_ascii(tmp_path: Path) -> None:
    source = (examples() / "broken" / "atn101_missing_scale.py").read_text()
    (tmp_path / "model.py").write_text(source.replace("# <- ATN101", "# Größe"), encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [*COMMAND, "lint", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert run.returncode == 1
    assert b"# Gr??e" in run.stdout
    assert run.stderr == b""
