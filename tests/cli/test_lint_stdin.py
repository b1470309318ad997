"""``attn-guard lint -``: source from standard input, as editors send it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from attn_guard.cli import main
from attn_guard.gotchas.registry import examples

BROKEN = (examples() / "broken" / "atn101_missing_scale.py").read_bytes()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def given(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given(monkeypatch, BROKEN)
    assert main(["lint", "-", "--output-format", "concise"]) == 1
    assert capsys.readouterr().out.startswith("<stdin>:")


def test_it_is_reported_under_its_own_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given(monkeypatch, BROKEN)
    assert main(["lint", "-", "--stdin-filename", "src/model.py", "--output-format", "concise"]) == 1
    assert capsys.readouterr().out.startswith("src/model.py:")


def test_what_the_configuration_says_of_that_name_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text(
        '[tool.attn-guard]\nexclude = ["vendor"]\nper-file-ignores = { "old/*" = ["ATN101"] }\n'
    )
    for name, code in (("vendor/a.py", 0), ("old/a.py", 0), ("src/a.py", 1)):
        given(monkeypatch, BROKEN)
        assert main(["lint", "-", "--stdin-filename", name]) == code


def test_nothing_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, b"")
    assert main(["lint", "-"]) == 0
