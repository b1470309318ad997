"""``attn-guard lint --fix``, ``--unsafe-fixes`` and ``--diff``."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from attn_guard.cli import main
from attn_guard.gotchas.registry import examples

SAFE = (examples() / "broken" / "atn302_view_after_transpose.py").read_text()
MENDED = SAFE.replace("context.view(", "context.reshape(")
UNSAFE = (examples() / "broken" / "atn101_missing_scale.py").read_text()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def given(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_what_is_certain_is_mended(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(SAFE)
    assert main(["lint", "--fix"]) == 0
    assert (folder / "model.py").read_text() == MENDED
    shown = capsys.readouterr()
    assert shown.out == "no mistakes found in 1 file\n"
    assert shown.err == "fixed 1 finding\n"


def test_what_is_not_certain_is_mended_on_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(UNSAFE)
    assert main(["lint", "--fix"]) == 1
    assert (folder / "model.py").read_text() == UNSAFE
    assert capsys.readouterr().out.endswith("\n1 fixable with --fix --unsafe-fixes\n")
    assert main(["lint", "--fix", "--unsafe-fixes"]) == 0
    assert "* query.shape[-1] ** -0.5  # <- ATN101" in (folder / "model.py").read_text()


def test_findings_that_can_be_mended_are_marked_and_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "safe.py").write_text(SAFE)
    (folder / "unsafe.py").write_text(UNSAFE)
    assert main(["lint", "--output-format", "concise"]) == 1
    first, second, *last = capsys.readouterr().out.splitlines()
    assert first.endswith("[*]")
    assert not second.endswith("[*]")
    assert last == ["2 errors in 2 files", "[*] 1 fixable with --fix", "1 more fixable with --fix --unsafe-fixes"]


def test_what_is_left_is_reported_and_fails_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "safe.py").write_text(SAFE)
    (folder / "unsafe.py").write_text(UNSAFE)
    assert main(["lint", "--fix", "--output-format", "concise"]) == 1
    assert (folder / "safe.py").read_text() == MENDED
    first, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("unsafe.py:")


def test_a_diff_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(SAFE)
    assert main(["lint", "--diff"]) == 1
    assert (folder / "model.py").read_text() == SAFE
    shown = capsys.readouterr()
    assert shown.out.startswith("--- model.py\n+++ model.py\n@@ ")
    assert "\n-        return self.out(context.view(" in shown.out
    assert "\n+        return self.out(context.reshape(" in shown.out
    assert shown.err == "would fix 1 finding\n"


def test_a_diff_without_changes_is_clean(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(UNSAFE)
    assert main(["lint", "--diff"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["lint", "--diff", "--unsafe-fixes"]) == 1
    assert main(["lint", "--diff", "--unsafe-fixes", "--exit-zero"]) == 0


def test_standard_input_comes_out_mended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given(monkeypatch, SAFE.encode())
    assert main(["lint", "--fix", "--stdin-filename", "model.py", "-"]) == 0
    shown = capsys.readouterr()
    assert shown.out == MENDED
    assert "no mistakes found" in shown.err


def test_standard_input_that_cannot_be_mended_comes_out_as_it_went_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for content in (UNSAFE, "x = = 1\n", ""):
        given(monkeypatch, content.encode())
        assert main(["lint", "--fix", "-"]) == (1 if content else 0)
        assert capsys.readouterr().out == content


def test_what_is_accepted_or_ignored_is_not_mended(folder: Path) -> None:
    (folder / "model.py").write_text(SAFE)
    assert main(["lint", "--fix", "--ignore", "ATN302"]) == 0
    assert (folder / "model.py").read_text() == SAFE
    assert main(["lint", "--write-baseline"]) == 0
    assert main(["lint", "--fix", "--baseline", "attn-guard-baseline.json"]) == 0
    assert (folder / "model.py").read_text() == SAFE


def test_a_link_stays_a_link_and_permissions_stay(folder: Path) -> None:
    (folder / "real.py").write_text(SAFE)
    (folder / "real.py").chmod(0o640)
    (folder / "model.py").symlink_to("real.py")
    assert main(["lint", "--fix", "model.py"]) == 0
    assert (folder / "model.py").is_symlink()
    assert (folder / "real.py").read_text() == MENDED
    assert (folder / "real.py").stat().st_mode & 0o777 == 0o640
