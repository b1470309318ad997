"""``attn-guard lint``: what it prints and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attn_guard.cli import main
from attn_guard.gotchas.registry import examples

BROKEN = (examples() / "broken" / "atn101_missing_scale.py").read_text()
FIXED = (examples() / "fixed" / "atn101_missing_scale.py").read_text()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_findings_exit_with_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(BROKEN)
    assert main(["lint"]) == 1
    shown = capsys.readouterr().out
    assert "error[ATN101] missing-scale" in shown
    assert "--> model.py:" in shown
    assert "\n1 error in 1 file\n" in shown


def test_clean_sources_exit_with_zero(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(FIXED)
    assert main(["lint", "model.py"]) == 0
    assert capsys.readouterr().out == "no mistakes found in 1 file\n"


def test_an_empty_folder_is_clean() -> None:
    assert main(["lint"]) == 0


def test_exit_zero_shows_findings_all_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(BROKEN)
    assert main(["lint", "--exit-zero"]) == 0
    assert "ATN101" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--ignore", "ATN101"], ["--ignore=ATN1"], ["--select", "ATN2,ATN3"]])
def test_codes_can_be_left_out(folder: Path, options: list[str]) -> None:
    (folder / "model.py").write_text(BROKEN)
    assert main(["lint", *options]) == 0


def test_statistics_count_by_code(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "one.py").write_text(BROKEN)
    (folder / "two.py").write_text(BROKEN)
    assert main(["lint", "--statistics"]) == 1
    assert capsys.readouterr().out == "    2  ATN101  missing-scale\n"


def test_concise_output_is_one_line_a_finding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(BROKEN)
    main(["lint", "--output-format", "concise"])
    first, last, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("model.py:")
    assert "ATN101 missing-scale: " in first
    assert last == "1 error in 1 file"


def test_json_output_is_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(BROKEN)
    main(["lint", "--output-format", "json"])
    assert json.loads(capsys.readouterr().out)["counts"]["error"] == 1


def test_a_file_that_does_not_parse_is_a_finding_and_the_run_goes_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.py").write_text("def f(:\n    return (q @ k).softmax(-1)\n")
    (folder / "model.py").write_text(BROKEN)
    assert main(["lint", "--output-format", "concise"]) == 1
    shown = capsys.readouterr().out
    assert "bad.py:" in shown
    assert "ATN900" in shown
    assert "ATN101" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lint", "nowhere"], "nowhere: no such file or folder"),
        (["lint", "--select", "ATN999"], "unknown code 'ATN999'"),
        (["lint", "--output-format", "yaml"], "invalid choice: 'yaml'"),
        (["lint", "--colour"], "unrecognized arguments: --colour"),
        ([], "required: COMMAND"),
    ],
)
def test_what_cannot_run_exits_with_two_and_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("attn-guard: error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_the_configuration_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = "[tool.attn-guard]\npaths = ['src']\nexclude = ['vendor']\nper-file-ignores = { 'old.py' = ['ATN101'] }\n"
    (folder / "pyproject.toml").write_text(table)
    for path in ("src/new.py", "src/old.py", "src/vendor/copied.py", "elsewhere.py"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(BROKEN)
    assert main(["lint", "--output-format", "concise"]) == 1
    first, last, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("src/new.py:")
    assert last == "1 error in 2 files (1 silenced)"


def test_the_configuration_nearest_to_a_file_counts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").write_text("[tool.attn-guard]\nseverity = { ATN101 = 'warning' }\n")
    (folder / "parts").mkdir()
    (folder / "parts" / "pyproject.toml").write_text("[project]\nname = 'no table of ours'\n")
    (folder / "other").mkdir()
    (folder / "other" / "pyproject.toml").write_text("[tool.attn-guard]\nexclude = ['old.py']\nignore = ['ATN3']\n")
    for path in ("a.py", "parts/b.py", "other/c.py", "other/old.py"):
        (folder / path).write_text(BROKEN)
    assert main(["lint", ".", "--output-format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    shown = [(Path(one["location"]["path"]).as_posix(), one["severity"]) for one in found["findings"]]
    assert shown == [("a.py", "warning"), ("other/c.py", "error"), ("parts/b.py", "warning")]
    assert main(["lint", "other/old.py"]) == 0
    assert main(["lint", "--ignore", "ATN101"]) == 0


def test_an_excluded_folder_makes_no_other_file_a_named_one(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.attn-guard]\nexclude = ['vendor']\n")
    (folder / "plain.py").write_text("print 'Python 2, and no attention'\n")
    assert main(["lint"]) == 0
    assert main(["lint", "plain.py"]) == 1


def test_a_bad_configuration_exits_with_two(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").write_text("[tool.attn-guard]\npreview = 'yes'\n")
    assert main(["lint"]) == 2
    assert "preview = 'yes': expected true or false" in capsys.readouterr().err


def test_what_select_names_takes_the_place_of_the_configured(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.attn-guard]\nselect = ['ATN2']\n")
    (folder / "model.py").write_text(BROKEN)
    assert main(["lint"]) == 0
    assert main(["lint", "--select", "ATN101"]) == 1


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("attn_guard.config.Nearest", interrupted)
    assert main(["lint"]) == 130


def test_what_was_found_is_remembered_in_the_current_folder_without_a_configuration(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "model.py").write_text(BROKEN)
    assert main(["lint", "src"]) == 1
    assert sorted(path.name for path in folder.iterdir()) == [".attn_guard_cache", "src"]


def test_nothing_is_remembered_without_a_cache(folder: Path) -> None:
    (folder / "model.py").write_text(BROKEN)
    assert main(["lint", "--no-cache"]) == 1
    assert [path.name for path in folder.iterdir()] == ["model.py"]


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_jobs_are_a_number_of_processes(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", f"--jobs={jobs}"]) == 2
    assert "expected a number of processes, from 1" in capsys.readouterr().err
