"""Probes every model type of `transformers` that can be built small, and prints what was found.

Run: ``python tests/bench/zoo.py --out zoo.jsonl --jobs 2``. A line of JSON is written for each type as it is done; a run
that is begun again goes on where it stopped. ``--sample N`` takes N types, ``--only a,b`` some, ``--print`` only prints.
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
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

PER_MODEL = 120  # seconds


class OutOfTime(BaseException):
    """A model took too long; no ``except Exception`` of its own stops this one."""


def outcome(kind: str) -> dict[str, Any]:
    """What the zoo knows of one model type."""
    from tests.zoo.models import NotBuiltError, brief, example
    from tests.zoo.probing import Outcome, probe_model

    def out_of_time(*_: Any) -> None:
        raise OutOfTime

    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(PER_MODEL)
    start, reached = time.perf_counter(), "configuration"
    try:
        found = example(kind)
        reached = "ran"
        result = probe_model(kind, found.model, (), found.kwargs)
    except NotBuiltError as error:
        result = Outcome(kind, str(error).partition(":")[0], str(error).partition(": ")[2][:1500])
    except OutOfTime:
        result = Outcome(kind, reached, f"out of time after {PER_MODEL} s")
    except Exception as error:
        result = Outcome(kind, "crashed" if reached == "ran" else reached, brief(error))
    finally:
        signal.alarm(0)
    return {**result.as_dict(), "total": time.perf_counter() - start}


def prepare() -> None:
    import torch

    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)


def run(kinds: list[str], out: Path, jobs: int) -> None:
    import transformers  # noqa: F401  (loaded once, before the workers are forked)

    prepare()
    with out.open("a", encoding="utf-8") as lines, multiprocessing.Pool(jobs, prepare, maxtasksperchild=40) as pool:
        for done, result in enumerate(pool.imap_unordered(outcome, kinds), 1):
            lines.write(json.dumps(result) + "\n")
            lines.flush()
            print(f"\r{done}/{len(kinds)} {result['kind']:40}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def show(results: list[dict[str, Any]]) -> None:
    ran = [result for result in results if result["reached"] == "ran" and result["whole"]]
    classes = [part for result in ran for part in result["classes"]]
    distinct = {part["name"]: part for part in sorted(classes, key=lambda part: not part["declined"])}
    probed = [part for part in distinct.values() if not part["declined"]]
    findings = [
        (result["kind"], part["name"] if part["path"] else "whole", finding)
        for result in ran
        for part in (result["whole"], *result["classes"])
        for finding in part["findings"]
    ]
    print("\nFindings at error and warning")
    seen = Counter((where, f["code"], f["severity"], f["place"], f["message"]) for kind, where, f in findings)
    shown: set[tuple[str, ...]] = set()
    for kind, where, finding in findings:
        key = (where, finding["code"], finding["severity"], finding["place"], finding["message"])
        if finding["severity"] != "info" and key not in shown:
            shown.add(key)
            numbers = f" (expected {finding['expected']}, found {finding['found']})" if finding["found"] else ""
            print(f"{finding['code']} {finding['severity']:7} {kind:24} {where:36} {finding['place']}  {finding['message']}{numbers} ×{seen[key]}")
    print("\nAttention classes that were declined")
    reasons = Counter(part["declined"].partition(":")[0][:90] for part in distinct.values() if part["declined"])
    for part in distinct.values():
        if part["declined"]:
            print(f"{part['name']:48} {part['path']:50} {part['declined'][:180]}")
    print(f"\n{len(results)} types tried, {sum(r['reached'] in ('instance', 'ran', 'crashed') for r in results)} instantiated, {len(ran)} ran, "
          f"{sum(r['reached'] == 'crashed' for r in results)} crashed in the probe")
    for result in results:
        if result["reached"] == "crashed":
            print(f"  crashed: {result['kind']}: {result['error']}")
    print(f"{sum(result['whole']['sites'] for result in ran)} attention computations in whole models; "
          f"{sum(not result['whole']['declined'] for result in ran)} models show attention")
    if distinct:
        print(f"{len(distinct)} attention classes ran, {len(probed)} probed ({len(probed) / len(distinct):.1%}); declined: {dict(reasons)}")
    by_code = Counter((f["code"], f["severity"]) for _, _, f in findings)
    print("findings by code and severity:", {" ".join(key): count for key, count in sorted(by_code.items())})
    print(f"{sum(r['total'] for r in results):.0f} s of work; slowest: "
          + ", ".join(f"{r['kind']} {r['total']:.0f} s" for r in sorted(results, key=lambda r: -r["total"])[:8]))


def main() -> None:
    from tests.zoo.models import kinds as all_kinds

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--print", action="store_true", dest="print_only")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else all_kinds()
    if options.sample:
        wanted = random.Random(0).sample(wanted, options.sample)
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    left = [kind for kind in wanted if kind not in {result["kind"] for result in done}]
    start = time.perf_counter()
    if left and not options.print_only:
        run(left, options.out, options.jobs)
        done = [json.loads(line) for line in options.out.read_text().splitlines()]
    show([result for result in done if result["kind"] in set(wanted)])
    print(f"wall time of this run {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
