"""What was found in a content is remembered, and never more than that."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from attn_guard.findings import Report
from attn_guard.gotchas.registry import examples
from attn_guard.lint import run
from attn_guard.lint.cache import FOLDER, Cache
from attn_guard.lint.plan import Plan
from attn_guard.lint.record_format import record_of, report_of
from attn_guard.lint.run import lint_paths
from tests.lint.sources import attention

BROKEN = attention("q @ k.mT")
PLAN = Plan.of((), (), preview=False)
TWINS = sorted((examples() / "broken").glob("atn*.py"))


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that are read closely."""
    seen: list[str] = []
    plain = run.Judge.file

    def file(self: run.Judge, given: run.File) -> tuple[bytes, Report]:
        seen.append(given.path.name)
        return plain(self, given)

    monkeypatch.setattr(run.Judge, "file", file)
    return seen


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "model.py").write_text(BROKEN)
    (folder / "other.py").write_text(attention("q @ k.mT / q.shape[-1] ** 0.5"))
    (folder / "plain.py").write_text("x = 1\n")
    return folder


def linted(folder: Path, **options: Iterable[str]) -> Report:
    return lint_paths([folder], cache=folder.parent / FOLDER, **options)  # type: ignore[arg-type]


def test_second_run_reads_nothing_and_finds_the_same(sources: Path, judged: list[str]) -> None:
    first = linted(sources)
    assert judged == ["model.py", "other.py"]
    assert first.codes == {"ATN101": 1}
    assert linted(sources) == first
    assert judged == ["model.py", "other.py"]


def test_only_what_changed_is_read_again(sources: Path, judged: list[str]) -> None:
    linted(sources)
    judged.clear()
    (sources / "other.py").write_text(BROKEN)  # known content, at another place
    (sources / "model.py").write_text(BROKEN + "\nx = 2\n")
    assert [(Path(f.location.path).name, f.code) for f in linted(sources)] == [
        ("model.py", "ATN101"),
        ("other.py", "ATN101"),
    ]
    assert judged == ["model.py"]


def test_touching_and_moving_a_file_changes_nothing(sources: Path, judged: list[str]) -> None:
    linted(sources)
    judged.clear()
    (sources / "model.py").rename(sources / "moved.py")
    (finding,) = linted(sources)
    assert finding.location.path == str(sources / "moved.py")
    assert judged == []


def test_another_selection_is_another_memory(sources: Path) -> None:
    assert linted(sources).codes == {"ATN101": 1}
    assert linted(sources, ignore=["ATN101"]).codes == {}
    assert linted(sources, select=["ATN1"]).codes == {"ATN101": 1}


def test_a_named_file_is_still_checked_for_its_syntax(sources: Path) -> None:
    bad = sources / "bad.py"
    bad.write_text("x = = 1\n")
    assert linted(sources).codes == {"ATN101": 1}
    assert lint_paths([bad], cache=sources.parent / FOLDER).codes == {"ATN900": 1}


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"{", b"\xff\xfe", b'{"version": 1}'],
    ids=["empty", "list", "null", "cut", "binary", "other"],
)
def test_a_damaged_memory_is_as_good_as_none(sources: Path, content: bytes) -> None:
    first = linted(sources)
    (file,) = (sources.parent / FOLDER).glob("*.json")
    file.write_bytes(content)
    assert linted(sources) == first
    assert json.loads(file.read_bytes())


def test_entries_of_the_wrong_shape_are_read_anew(sources: Path) -> None:
    first = linted(sources)
    (file,) = (sources.parent / FOLDER).glob("*.json")
    for wrong in (3, [1, 2], "x", {"findings": 1}, [[["x"]]]):
        entries = json.loads(file.read_bytes())
        file.write_text(json.dumps(dict.fromkeys(entries, wrong)))
        assert linted(sources) == first


def test_an_interrupted_run_leaves_the_memory_whole(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    linted(sources)
    (file,) = (sources.parent / FOLDER).glob("*.json")
    before = file.read_bytes()
    (sources / "third.py").write_text(BROKEN + "\ny = 3\n")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(json, "dump", interrupted)
        with pytest.raises(KeyboardInterrupt):
            linted(sources)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir() if path.suffix == ".tmp"] == []


def test_a_folder_that_cannot_be_written_only_costs_time(sources: Path) -> None:
    (sources.parent / FOLDER).write_text("a file, not a folder")
    assert linted(sources).codes == {"ATN101": 1}


def test_the_folder_keeps_itself_out_of_version_control(sources: Path) -> None:
    linted(sources)
    assert (sources.parent / FOLDER / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("twin", TWINS, ids=lambda path: path.stem)
def test_a_report_survives_its_record(twin: Path) -> None:
    report = lint_paths([twin], preview=True)
    record = json.loads(json.dumps(record_of(report, str(twin))))
    assert report_of(record, str(twin)) == report
    moved = report_of(record, "elsewhere.py")
    assert {finding.location.path for finding in moved} <= {"elsewhere.py"}


def test_no_folder_means_no_memory(sources: Path) -> None:
    with Cache.open(None, PLAN) as known:
        known.put(b"x", False, "a.py", Report(files=1))
        assert known.get(b"x", False, "a.py") is None


def test_plans_differ_in_what_they_remember(tmp_path: Path) -> None:
    with Cache.open(tmp_path, PLAN) as known:
        known.put(b"x", False, "a.py", Report(files=1, regions=3))
    for plan, expected in ((PLAN, Report(files=1, regions=3)), (replace(PLAN, own=frozenset()), None)):
        with Cache.open(tmp_path, plan) as known:
            assert known.get(b"x", False, "b.py") == expected
