"""How [tool.attn-guard] is found, read and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_guard.config import Config, load
from attn_guard.errors import UsageError
from attn_guard.findings import Finding, Location, Report, Severity


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "pyproject.toml"
    file.write_text(text)
    return file


def finding(path: Path, code: str = "ATN201") -> Finding:
    return Finding(code, "some-name", Severity.ERROR, "wrong", Location(str(path), 1), help="mend it")


def test_a_project_without_a_table_gets_the_defaults(tmp_path: Path) -> None:
    write(tmp_path, "[project]\nname = 'x'\n")
    assert load(tmp_path) == Config(root=tmp_path)


def test_every_key_is_read(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        [tool.attn-guard]
        paths = ["src"]
        exclude = ["src/vendor"]
        select = ["ATN2"]
        ignore = ["ATN203"]
        preview = true
        per-file-ignores = { "tests/*" = ["ATN101"] }
        severity = { ATN2 = "info", ATN203 = "warning" }
        baseline = "accepted.json"
        """,
    )
    assert load(tmp_path) == Config(
        root=tmp_path,
        paths=("src",),
        exclude=("src/vendor",),
        select=("ATN2",),
        ignore=("ATN203",),
        preview=True,
        per_file_ignores={"tests/*": ("ATN101",)},
        severity={"ATN2": Severity.INFO, "ATN203": Severity.WARNING},
        baseline="accepted.json",
    )


def test_the_nearest_file_with_the_table_counts(tmp_path: Path) -> None:
    write(tmp_path, "[tool.attn-guard]\nignore = ['ATN101']\n")
    write(tmp_path / "inner", "[tool.attn-guard]\nignore = ['ATN102']\n")
    write(tmp_path / "inner" / "bare", "[tool.other]\n")
    assert load(tmp_path / "inner" / "bare").ignore == ("ATN102",)
    assert load(tmp_path / "inner" / "bare").root == tmp_path / "inner"
    assert load(tmp_path / "elsewhere").ignore == ("ATN101",)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("slect = ['ATN201']", ["unknown key 'slect'", "did you mean 'select'?"]),
        ("colour = 1", ["unknown key 'colour'", "there are paths, exclude, select"]),
        ("select = 'ATN201'", ["select = 'ATN201'", "expected a list of codes"]),
        ("ignore = [201]", ["ignore = [201]", "expected a list of codes"]),
        ("select = ['E501']", ["select = ['E501']", "expected a list of codes"]),
        ("preview = 'yes'", ["preview = 'yes'", "expected true or false"]),
        ("paths = 3", ["paths = 3", "expected a list of files and folders"]),
        ("per-file-ignores = ['ATN101']", ["per-file-ignores = ['ATN101']", "expected a table"]),
        ("per-file-ignores = { 'a.py' = 'ATN101' }", ["per-file-ignores", "expected a table"]),
        ("severity = { ATN201 = 'fatal' }", ["severity = {'ATN201': 'fatal'}", '"error", "warning" or "info"']),
        ("severity = { E501 = 'info' }", ["severity = {'E501': 'info'}", "expected a table of codes"]),
        ("severity = { ATN201 = ['info'] }", ["severity = {'ATN201': ['info']}", "expected a table of codes"]),
        ("severity = 'info'", ["severity = 'info'", "expected a table of codes"]),
        ("baseline = true", ["baseline = True", "expected the path of a file"]),
    ],
)
def test_a_bad_value_is_refused_in_one_line(tmp_path: Path, line: str, parts: list[str]) -> None:
    file = write(tmp_path, f"[tool.attn-guard]\n{line}\n")
    with pytest.raises(UsageError) as caught:
        load(tmp_path)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert "\n" not in message
    assert all(part in message for part in parts), message


def test_a_file_that_is_not_toml_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "[tool.attn-guard\n")
    with pytest.raises(UsageError, match="not valid TOML"):
        load(tmp_path)


def test_a_table_that_is_no_table_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "[tool]\nattn-guard = 1\n")
    with pytest.raises(UsageError, match=r"tool\.attn-guard = 1: expected a table"):
        load(tmp_path)


def test_broken_toml_that_is_not_about_us_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path, "[tool.other\n")
    assert load(tmp_path) == Config(root=tmp_path)


@pytest.mark.parametrize(
    ("pattern", "excluded"),
    [
        ("vendor", ["src/vendor/a.py", "vendor/deep/b.py"]),
        ("src/vendor/", ["src/vendor/a.py"]),
        ("*_pb2.py", ["src/x_pb2.py"]),
        ("src/*", ["src/vendor/a.py", "src/x_pb2.py", "src/model.py"]),
    ],
)
def test_exclude_patterns_name_files_and_folders(tmp_path: Path, pattern: str, excluded: list[str]) -> None:
    config = Config(root=tmp_path, exclude=(pattern,))
    files = ["src/vendor/a.py", "vendor/deep/b.py", "src/x_pb2.py", "src/model.py"]
    assert [file for file in files if config.excludes(tmp_path / file)] == excluded


def test_nothing_outside_the_project_is_excluded(tmp_path: Path) -> None:
    assert not Config(root=tmp_path / "project", exclude=("*",)).excludes(tmp_path / "other" / "a.py")


def test_per_file_ignores_silence_their_codes_in_their_files(tmp_path: Path) -> None:
    config = Config(root=tmp_path, per_file_ignores={"tests/*": ("ATN1",)})
    test, source = tmp_path / "tests" / "a.py", tmp_path / "src" / "a.py"
    report = Report(findings=(finding(test, "ATN101"), finding(test, "ATN201"), finding(source, "ATN101")))
    applied = config.apply(report)
    assert applied.findings == (finding(test, "ATN201"), finding(source, "ATN101"))
    assert applied.suppressed == (finding(test, "ATN101"),)


def test_findings_in_excluded_files_are_silenced(tmp_path: Path) -> None:
    config = Config(root=tmp_path, exclude=("vendor",))
    report = Report(findings=(finding(tmp_path / "vendor" / "a.py"), finding(tmp_path / "a.py")))
    assert config.apply(report).findings == (finding(tmp_path / "a.py"),)


def test_severities_are_replaced_the_longest_code_first(tmp_path: Path) -> None:
    config = Config(tmp_path, severity={"ATN2": Severity.INFO, "ATN203": Severity.WARNING})
    report = Report(findings=tuple(finding(tmp_path / "a.py", code) for code in ("ATN101", "ATN201", "ATN203")))
    assert [found.severity for found in config.apply(report)] == [Severity.ERROR, Severity.INFO, Severity.WARNING]
    assert not config.apply(report).ok
