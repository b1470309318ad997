"""Spreads work on files over processes, where there is enough of it to pay for starting them."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from attn_guard.lint.run import File

_WORTH_A_PROCESS = 200_000  # bytes of source with attention: about half a second of reading, five starts of a process
_CHUNK = 4  # files that are handed over at once; with more of them, the last process is alone for longer

Result = TypeVar("Result")


def spread(work: Callable[[File], Result], files: Iterable[File], jobs: int) -> Iterator[tuple[File, Result]]:
    """The files with the results of the work on each, in their order.

    Processes start as soon as there is enough to do for each, and work while the other files are found.
    """
    coming = iter(files)
    first, size = [], 0
    while size < jobs * _WORTH_A_PROCESS and (file := next(coming, None)):
        first.append(file)
        size += file.size
    workers = min(jobs, size // _WORTH_A_PROCESS)
    every = itertools.chain(first, coming)
    if workers < 2:
        yield from ((file, work(file)) for file in every)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    kept, handed = itertools.tee(every)
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context(_method())) as pool:
        try:
            results = pool.map(work, handed, chunksize=_CHUNK)  # takes every file before it gives the first result
            yield from zip(kept, results, strict=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _method() -> str:
    """A copy of this process starts in a hundredth of the time of a new one, but is only safe on some systems, and in
    a process of one thread."""
    has_threads = threading.active_count() > 1 or "torch" in sys.modules
    return "fork" if sys.platform == "linux" and not has_threads else "spawn"
