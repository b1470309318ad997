"""Gotchas of other packages are found, explained and selected like our own; one that is broken is named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attn_guard.errors import UsageError
from attn_guard.findings import Detector
from attn_guard.gotchas.plugins import plugin_modules
from attn_guard.gotchas.registry import Entry, read

PACKAGE = Path(__file__).parent / "plugin" / "acme_attention"
BROKEN, FIXED = (
    PACKAGE / "acme_gotchas" / "examples" / kind / "acme101_weights_without_dropout.py" for kind in ("broken", "fixed")
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages with a copy of the example package, which a test may break."""
    folder = tmp_path / "site"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.startswith("acme_gotchas")]:
        monkeypatch.delitem(sys.modules, name)
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``attn-guard`` where the example package is installed."""
    path = os.pathsep.join([str(folder), *(entry for entry in sys.path if entry)])
    return subprocess.run(
        [sys.executable, "-m", "attn_guard.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_it_is_listed_explained_and_selected() -> None:
    listed = run(PACKAGE, "rules")
    assert "\nATN101 " in f"\n{listed.stdout}"
    assert "\nACME101  weights-without-dropout" in f"\n{listed.stdout}"
    assert "this team trains every attention with dropout" in run(PACKAGE, "explain", "ACME101").stdout
    found = run(PACKAGE, "lint", str(BROKEN), "--select", "ACME", "--output-format", "concise")
    assert found.returncode == 1
    assert ": ACME101 weights-without-dropout: weights pass no dropout" in found.stdout
    assert run(PACKAGE, "lint", str(FIXED)).returncode == 0
    assert run(PACKAGE, "lint", str(BROKEN), "--ignore", "ACME101").returncode == 0


def test_comments_and_configuration_know_its_codes(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path, dirs_exist_ok=True)
    source = BROKEN.read_text(encoding="utf-8")
    silent = source.replace("# <- ACME101", "# attn-guard: ignore[ACME101] inference only")
    (tmp_path / "silent.py").write_text(silent, encoding="utf-8")
    (tmp_path / "loud.py").write_text(source, encoding="utf-8")
    assert run(tmp_path, "lint", "silent.py").returncode == 0
    assert run(tmp_path, "lint", "loud.py").returncode == 1
    (tmp_path / "pyproject.toml").write_text('[tool.attn-guard]\nignore = ["ACME101"]\n', encoding="utf-8")
    assert run(tmp_path, "lint", "loud.py").returncode == 0


def test_its_twins_are_run_as_ours(installed: Path) -> None:
    ((origin, module),) = plugin_modules()
    entry: Entry = read(module, installed / "acme_gotchas" / "examples")
    assert origin == "the gotcha plugin 'acme' of acme-attention (acme_gotchas)"
    assert entry.detectors == (Detector.LINT, Detector.PROBE)
    assert entry.broken.is_file()
    assert entry.fixed.is_file()


def test_an_entry_point_may_name_a_single_file(installed: Path) -> None:
    named = "[attn_guard.gotchas]\nacme = acme_gotchas.acme101_weights_without_dropout\n"
    (installed / "acme_attention-1.0.dist-info" / "entry_points.txt").write_text(named)
    ((_, module),) = plugin_modules()
    assert module.GOTCHA.code == "ACME101"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("__init__.py", "1 / 0\n", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("__init__.py", "import nowhere\n", "cannot be loaded: ModuleNotFoundError: No module named 'nowhere'"),
        ("__init__.py", "raise SystemExit(3)\n", "cannot be loaded: SystemExit: 3"),
        ("acme101_weights_without_dropout.py", "def f(:\n", "cannot be loaded: SyntaxError: "),
        ("acme101_weights_without_dropout.py", "", "is incomplete: acme101_weights_without_dropout: has no GOTCHA"),
    ],
)
def test_a_broken_one_is_named_in_one_line(tmp_path: Path, file: str, text: str, message: str) -> None:
    shutil.copytree(PACKAGE, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "acme_gotchas" / file).write_text(text)
    found = run(tmp_path, "lint", ".")
    assert found.returncode == 2
    assert found.stdout == ""
    assert found.stderr.startswith("attn-guard: error: the gotcha plugin 'acme' of acme-attention (acme_gotchas) ")
    assert message in found.stderr
    assert "Traceback" not in found.stderr


def test_a_missing_module_is_named(installed: Path) -> None:
    (installed / "acme_attention-1.0.dist-info" / "entry_points.txt").write_text(
        "[attn_guard.gotchas]\nx = gone:what\n"
    )
    with pytest.raises(
        UsageError, match=r"plugin 'x' of acme-attention \(gone:what\) cannot be loaded: ModuleNotFound"
    ):
        list(plugin_modules())


def test_a_code_that_is_taken_is_refused(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "acme_gotchas"
    for file in folder.rglob("acme101_*.py"):
        text = file.read_text().replace("ACME101", "ATN101")
        file.with_name(file.name.replace("acme101", "atn101")).write_text(text)
        file.unlink()
    assert "code ATN101 is taken by missing-scale" in run(tmp_path, "rules").stderr


def test_where_there_is_none_no_metadata_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "other-1.0.dist-info").mkdir()
    (tmp_path / "other-1.0.dist-info" / "entry_points.txt").write_text("[console_scripts]\nx = y:z\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "gone"), ""])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "importlib.metadata", None)  # an import of it would fail
    assert list(plugin_modules()) == []
