"""Spreads work on files over processes, where there is enough of it to pay for starting them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from attn_guard.lint.run import File

_WORTH_A_PROCESS = 200_000  # bytes of source with attention: about half a second of reading, five starts of a process
_CHUNKS = 24  # a worker; more of them share the load better, fewer cost less to hand over

Result = TypeVar("Result")


def spread(work: Callable[[File], Result], files: Sequence[File], jobs: int) -> Iterator[Result]:
    """The results of the work on each file, in the order of the files."""
    workers = min(jobs, sum(file.size for file in files) // _WORTH_A_PROCESS)
    if workers < 2:
        yield from map(work, files)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    chunk = max(1, len(files) // (workers * _CHUNKS))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context(_method())) as pool:
        yield from pool.map(work, files, chunksize=chunk)


def _method() -> str:
    """A copy of this process starts in a hundredth of the time of a new one, but is only safe on some systems, and in
    a process of one thread."""
    has_threads = threading.active_count() > 1 or "torch" in sys.modules
    return "fork" if sys.platform == "linux" and not has_threads else "spawn"
