"""Several processes find what one finds, in the same order."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from attn_guard.gotchas.registry import examples
from attn_guard.lint import workers
from attn_guard.lint.run import File, lint_paths
from attn_guard.lint.workers import spread


def process(_: File) -> int:
    return os.getpid()


def stem(file: File) -> str:
    return file.path.stem


def touch(file: File) -> None:
    file.path.touch()


def touch_slowly(file: File) -> None:
    time.sleep(0.02)
    file.path.touch()


def processes(work: list[File], jobs: int) -> set[int]:
    """Those that did the work."""
    return {worker for _, worker in spread(process, work, jobs)}


def files(count: int, size: int) -> list[File]:
    return [File(Path(f"{index}.py"), False, size) for index in range(count)]


def test_two_processes_find_what_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_WORTH_A_PROCESS", 1)
    folder = examples() / "broken"
    assert lint_paths([folder], jobs=2) == lint_paths([folder])


def test_little_work_stays_in_this_process() -> None:
    assert processes(files(3, 1000), jobs=8) == {os.getpid()}


def test_much_work_leaves_it() -> None:
    assert os.getpid() not in processes(files(8, 1_000_000), jobs=2)


def test_one_job_is_this_process() -> None:
    assert processes(files(8, 1_000_000), jobs=1) == {os.getpid()}


def test_no_files_need_no_process() -> None:
    assert list(spread(process, [], jobs=4)) == []


@pytest.mark.parametrize("jobs", [1, 2, 5])
@pytest.mark.parametrize("size", [1_000, 300_000])
def test_results_come_with_their_files_in_order(jobs: int, size: int) -> None:
    work = files(11, size)
    assert [(file, name) for file, name in spread(stem, iter(work), jobs)] == [(file, file.path.stem) for file in work]


def test_processes_begin_before_the_last_file_is_found(tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def found() -> Iterator[File]:
        yield from (File(begun, False, 1_000_000) for _ in range(8))
        deadline = time.monotonic() + 60
        while not begun.exists():
            assert time.monotonic() < deadline, "no process has begun"
            time.sleep(0.01)

    assert len(list(spread(touch, found(), jobs=2))) == 8


def test_interrupt_while_files_are_found_does_not_wait_for_all_that_was_handed_out(tmp_path: Path) -> None:
    def found() -> Iterator[File]:
        yield from (File(tmp_path / str(index), False, 1_000_000) for index in range(200))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(spread(touch_slowly, found(), jobs=2))
    assert len(list(tmp_path.iterdir())) < 100
