"""``attn-guard lint --baseline`` and ``--write-baseline``."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_guard.cli import main
from attn_guard.gotchas.registry import examples

BROKEN = (examples() / "broken" / "atn101_missing_scale.py").read_text()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(BROKEN)
    return tmp_path


def test_written_once_what_there_is_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--write-baseline"]) == 0
    assert capsys.readouterr().out == "attn-guard-baseline.json accepts 1 finding\n"
    assert main(["lint", "--baseline", "attn-guard-baseline.json"]) == 0
    assert capsys.readouterr().out == "no mistakes found in 1 file (1 silenced)\n"


def test_what_is_new_fails(folder: Path) -> None:
    main(["lint", "--write-baseline"])
    (folder / "new.py").write_text(BROKEN)
    assert main(["lint", "--baseline", "attn-guard-baseline.json"]) == 1


def test_the_configuration_may_name_the_file(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.attn-guard]\nbaseline = "accepted.json"\n')
    assert main(["lint", "--write-baseline"]) == 0
    assert (folder / "accepted.json").exists()
    assert main(["lint"]) == 0


def test_a_missing_baseline_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--baseline", "gone.json"]) == 2
    assert "gone.json: No such file" in capsys.readouterr().err
