"""Probes every model type of `transformers` that can be built small, and attention of other libraries; prints what was
found.

Run: ``python tests/bench/zoo.py --out FILE.jsonl --jobs 2``. Each type makes a line of the file as it is done, and a
run that is begun again goes on where it stopped. ``--sample N`` takes N types, ``--only a,b`` these, ``--again`` does
types over that are in the file, ``--print`` only prints. Libraries that cannot be imported are left out.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import random
import signal
import sys
import time
import warnings
from collections.abc import Collection, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.zoo.layers import layer, layers
from tests.zoo.models import Example, NotBuiltError, brief, example, kinds
from tests.zoo.probing import Outcome, probe_model
from tests.zoo.tables import Result, show

PER_TYPE = 60  # seconds of processor time
PER_POOL = 120  # types that one pool of processes takes, so that memory does not grow


class OutOfTime(BaseException):
    """A type took too long; no ``except Exception`` of its own stops this one."""


def outcome(kind: str, known: Collection[str]) -> Result:
    """What the zoo learns of one type; attention classes that are ``known`` are not looked at by themselves again."""

    def out_of_time(*_: Any) -> None:
        raise OutOfTime

    signal.signal(signal.SIGPROF, out_of_time)
    signal.setitimer(signal.ITIMER_PROF, PER_TYPE)
    start, reached = time.process_time(), "configuration"
    try:
        found = built(kind)
        reached = "crashed"
        result = probe_model(kind, found.model, found.kwargs, known)
    except NotBuiltError as error:
        reached, _, why = str(error).partition(": ")
        result = Outcome(kind, reached, why[:1500])
    except OutOfTime:
        result = Outcome(kind, reached, f"out of time after {PER_TYPE} s")
    except Exception as error:
        result = Outcome(kind, reached, brief(error))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {**result.as_dict(), "total": time.process_time() - start}


def built(kind: str) -> Example:
    """Layers of other libraries are named ``library:layer``."""
    return layer(kind) if ":" in kind else example(kind)


def prepare() -> None:
    import torch

    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)


def outcomes(wanted: Sequence[str], jobs: int, known: set[str]) -> Iterator[Result]:
    """The outcome of each type as it is done. A type that ends its process is done again alone, and then given up."""
    left = iter(wanted)
    while slice_ := list(islice(left, PER_POOL)):
        lost = yield from _of_pool(slice_, jobs, known)
        for kind in lost:
            if (yield from _of_pool([kind], 1, known)):
                yield {**Outcome(kind, "crashed", "the process ended").as_dict(), "total": 0.0}


def _of_pool(wanted: Sequence[str], jobs: int, known: set[str]) -> Generator[Result, None, list[str]]:
    """Yields the outcomes and returns the types that were lost when a process ended."""
    waiting, running = list(reversed(wanted)), dict[Future[Result], str]()
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork"), prepare) as pool:
        while waiting or running:
            try:
                while waiting and len(running) < jobs:
                    kind = waiting.pop()
                    running[pool.submit(outcome, kind, frozenset(known))] = kind
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    del running[future]
                    known.update(part["name"] for part in result["classes"] if not part["declined"])
                    yield result
            except BrokenProcessPool:
                return [*running.values(), *reversed(waiting)]
    return []


def run(wanted: list[str], out: Path, jobs: int) -> None:
    prepare()
    outcome("bert", ())  # what every type needs is loaded once, before the workers are forked
    known = {part["name"] for result in read(out).values() for part in result["classes"] if not part["declined"]}
    with out.open("a", encoding="utf-8") as lines:
        for done, result in enumerate(outcomes(wanted, jobs, known), 1):
            lines.write(json.dumps(result) + "\n")
            lines.flush()
            print(f"\r{done}/{len(wanted)} {result['kind']:40}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def read(out: Path) -> dict[str, Result]:
    results = map(json.loads, out.read_text(encoding="utf-8").splitlines()) if out.exists() else ()
    return {result["kind"]: result for result in results}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--print", action="store_true", dest="print_only")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else [*layers(), *kinds()]
    if options.sample:
        wanted = random.Random(0).sample(wanted, options.sample)
    start = time.perf_counter()
    done = {} if options.again else read(options.out)
    left = [kind for kind in wanted if kind not in done]
    if left and not options.print_only:
        run(left, options.out, options.jobs)
    show([result for kind, result in read(options.out).items() if kind in wanted])
    if not options.print_only:
        print(f"wall time of this run {time.perf_counter() - start:.0f} s, {options.jobs} processes")


if __name__ == "__main__":
    main()
