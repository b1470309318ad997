"""``attn-guard lint --add-ignore``."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_guard.cli import main
from attn_guard.gotchas.registry import examples

BROKEN = (examples() / "broken" / "atn101_missing_scale.py").read_text()


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(BROKEN)
    return tmp_path / "model.py"


def test_what_there_is_is_silent_afterwards(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "--add-ignore"]) == 0
    assert capsys.readouterr().out == "silenced 1 finding\n"
    assert main(["lint"]) == 0
    assert "# attn-guard: ignore[ATN101]\n" in model.read_text()


def test_a_reason_is_written_beside_it(model: Path) -> None:
    main(["lint", "--add-ignore", "as published"])
    assert "# attn-guard: ignore[ATN101] as published\n" in model.read_text()


def test_nothing_to_silence_changes_nothing(model: Path) -> None:
    assert main(["lint", "--add-ignore", "--select", "ATN2"]) == 0
    assert model.read_text() == BROKEN


def test_a_file_that_does_not_parse_stays_as_it_is(model: Path) -> None:
    model.write_text("def softmax(:\n")
    assert main(["lint", "model.py", "--add-ignore"]) == 0
    assert model.read_text() == "def softmax(:\n"
