"""Breaks right attention on purpose, one mistake at a time, and prints what attn-guard finds of it.

Run: ``python tests/bench/mutants`` from the root of the repository; ``--style`` and ``--code`` choose, ``--list``
shows the edits, ``--json FILE`` writes every result. Each mutant is first shown to differ from its right twin by an
experiment without attn-guard; one that does not is an error of this bench.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch

from tests.bench.mutants import fault, score
from tests.bench.mutants.experiment import differs
from tests.bench.mutants.fault import Mutant
from tests.bench.mutants.score import Score


def main() -> int:
    options = arguments()
    torch.set_num_threads(1)
    chosen = list(fault.mutants(options.style, options.code))
    if options.list:
        print("\n".join(shown(mutant) for mutant in chosen))
        return 0
    start = time.perf_counter()
    broken: list[str] = []
    scores = []
    for number, mutant in enumerate(chosen, 1):
        if sys.stderr.isatty():
            print(f"\r{number}/{len(chosen)} {mutant.name:40}", end="", file=sys.stderr)
        try:
            situation = differs(mutant)
        except Exception as error:
            broken.append(f"{mutant.name}: {type(error).__name__}: {error}")
            continue
        if not situation:
            broken.append(f"{mutant.name}: does not differ from its right twin")
            continue
        scores.append(Score(mutant, situation, score.report(mutant.module, mutant.fault)))
    print_tables(scores, time.perf_counter() - start)
    alarms = print_right(options.style) if not options.code else 0
    for line in broken:
        print(f"error of the bench: {line}")
    if options.json:
        Path(options.json).write_text(json.dumps([record(one) for one in scores], indent=1), encoding="utf-8")
    return int(bool(broken or alarms))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/bench/mutants", description=__doc__)
    parser.add_argument("--style", default="", choices=["", *fault.NAMES])
    parser.add_argument("--code", default="", help="ATN2 for all that begin so")
    parser.add_argument("--list", action="store_true", help="print the edits and stop")
    parser.add_argument("--json", metavar="FILE", help="write every result")
    return parser.parse_args()


def shown(mutant: Mutant) -> str:
    edits = ((mutant.fault.old, mutant.fault.new), *mutant.fault.also)
    lines = [f"{mutant.name}  {dict(mutant.fault.sizes) or ''}"]
    for old, new in edits:
        lines += [f"  - {line.strip()}" for line in old.splitlines()]
        lines += [f"  + {line.strip()}" for line in new.splitlines()]
    return "\n".join(lines)


def print_tables(scores: list[Score], seconds: float) -> None:
    print(f"torch {torch.__version__}, one thread; {len(scores)} mutants shown to be wrong, {seconds:.0f} s")
    print(f"\n{'gotcha':10} {'mutants':>7} {'found':>6} {'first':>6} {'alone':>6} {'line':>6}")
    for code in sorted({one.code for one in scores}):
        print(row(code, [one for one in scores if one.code == code]))
    print(row("all", scores))
    print(f"\n{'style':10} {'mutants':>7} {'found':>6} {'first':>6} {'alone':>6} {'line':>6}")
    for style in dict.fromkeys(one.mutant.style for one in scores):
        print(row(style, [one for one in scores if one.mutant.style == style]))
    for title, missed in (
        ("not found", [one for one in scores if not one.found]),
        ("found, but something else comes first or beside it", [one for one in scores if one.found and not one.alone]),
        ("found, but on another line", [one for one in scores if one.found and not one.blamed]),
    ):
        print(f"\n{title}: {len(missed)}")
        for one in missed:
            lines = ",".join(map(str, sorted(one.mutant.faulty_lines)))
            print(f"  {shown(one.mutant)}\n    lines {lines}; differs when {one.situation}; found {one.instead}")


def row(name: str, scores: list[Score]) -> str:
    counts = (
        sum(one.found for one in scores),
        sum(one.first for one in scores),
        sum(one.alone for one in scores),
        sum(one.blamed for one in scores),
    )
    return f"{name:10} {len(scores):7} " + " ".join(f"{count:6}" for count in counts)


def print_right(style: str) -> int:
    """Checks the styles as they should be; the number of findings that must not be."""
    alarms = 0
    names: Iterable[str] = [style] if style else fault.NAMES
    print("\nright styles")
    for name in names:
        findings = list(score.report(fault.right(name)))
        alarms += sum(finding.fails for finding in findings)
        print(f"  {name:12} {', '.join(f'{one.code} {one.severity}' for one in findings) or 'nothing'}")
    return alarms


def record(one: Score) -> dict[str, object]:
    return {
        "name": one.mutant.name,
        "code": one.code,
        "edit": shown(one.mutant),
        "situation": one.situation,
        "found": one.found,
        "first": one.first,
        "alone": one.alone,
        "line": one.blamed,
        "lines": sorted(one.mutant.faulty_lines),
        "report": [f"{f.code} {f.severity} line {f.location.line}: {f.message} {f.consequences}" for f in one.report],
    }


if __name__ == "__main__":
    sys.exit(main())
