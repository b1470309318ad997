"""Probes every model type of `transformers` that can be built small, and prints what was found.

Run: ``python tests/bench/zoo.py --out FILE.jsonl --jobs 2``. Each type makes a line of the file as it is done, and a
run that is begun again goes on where it stopped. ``--sample N`` takes N types, ``--only a,b`` these, ``--print`` only
prints.
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
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.zoo.models import NotBuiltError, brief, example, kinds
from tests.zoo.probing import Outcome, probe_model
from tests.zoo.tables import Result, show

PER_MODEL = 120  # seconds


class OutOfTime(BaseException):
    """A model took too long; no ``except Exception`` of its own stops this one."""


def outcome(kind: str) -> Result:
    """What the zoo learns of one model type."""

    def out_of_time(*_: Any) -> None:
        raise OutOfTime

    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(PER_MODEL)
    start, reached = time.process_time(), "configuration"
    try:
        found = example(kind)
        reached = "crashed"
        result = probe_model(kind, found.model, (), found.kwargs)
    except NotBuiltError as error:
        reached, _, why = str(error).partition(": ")
        result = Outcome(kind, reached, why[:1500])
    except OutOfTime:
        result = Outcome(kind, reached, f"out of time after {PER_MODEL} s")
    except Exception as error:
        result = Outcome(kind, reached, brief(error))
    finally:
        signal.alarm(0)
    return {**result.as_dict(), "total": time.process_time() - start}


def prepare() -> None:
    import torch

    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)


def run(wanted: list[str], out: Path, jobs: int) -> None:
    import transformers  # noqa: F401  (loaded once, before the workers are forked)

    prepare()
    with out.open("a", encoding="utf-8") as lines, multiprocessing.Pool(jobs, prepare, maxtasksperchild=40) as pool:
        for done, result in enumerate(pool.imap_unordered(outcome, wanted), 1):
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
    parser.add_argument("--print", action="store_true", dest="print_only")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else kinds()
    if options.sample:
        wanted = random.Random(0).sample(wanted, options.sample)
    start = time.perf_counter()
    left = [kind for kind in wanted if kind not in read(options.out)]
    if left and not options.print_only:
        run(left, options.out, options.jobs)
    show([result for kind, result in read(options.out).items() if kind in wanted])
    print(f"wall time of this run {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
