"""Several processes find what one finds, in the same order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from attn_guard.gotchas.registry import examples
from attn_guard.lint import workers
from attn_guard.lint.run import File, lint_paths
from attn_guard.lint.workers import spread


def process(_: File) -> int:
    return os.getpid()


def files(count: int, size: int) -> list[File]:
    return [File(Path(f"{index}.py"), False, size) for index in range(count)]


def test_two_processes_find_what_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_WORTH_A_PROCESS", 1)
    folder = examples() / "broken"
    assert lint_paths([folder], jobs=2) == lint_paths([folder])


def test_little_work_stays_in_this_process() -> None:
    assert set(spread(process, files(3, 1000), jobs=8)) == {os.getpid()}


def test_much_work_leaves_it() -> None:
    assert os.getpid() not in set(spread(process, files(8, 1_000_000), jobs=2))


def test_one_job_is_this_process() -> None:
    assert set(spread(process, files(8, 1_000_000), jobs=1)) == {os.getpid()}


def test_no_files_need_no_process() -> None:
    assert list(spread(process, [], jobs=4)) == []
