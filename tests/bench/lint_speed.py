"""How long the linter takes beside other tools, all in one run: ``python tests/bench/lint_speed.py FOLDER``.

Each command runs several times, one after another in turns, and the quickest of its runs counts: what else the machine
does only makes a run slower. The folder is copied first, so that one file can be changed. TorchFix needs an environment
of its own (libcst < 1.6); with ``--torchfix PYTHON`` it reads the files of a sample, and so does
``libcst.parse_module``.
Both are extrapolated by bytes, without the time that they take to start, and compared with the linter by processor
time.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

GUARD = (sys.executable, "-m", "attn_guard", "lint", "--exit-zero", "--statistics")
PARSE = "import sys, pathlib, libcst; [libcst.parse_module(pathlib.Path(name).read_bytes()) for name in sys.argv[1:]]"
SEED = 0


@dataclass(frozen=True)
class Cost:
    """Seconds on the wall, and of all processors together."""

    wall: float
    processor: float


@dataclass
class Command:
    name: str
    words: Sequence[str | Path]
    prepare: str = ""  # of the cache: "none" is removed before each run, "changed" gets a file that it does not know
    best: Cost | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sample", type=int, default=1_000_000, help="bytes that libcst and TorchFix read")
    parser.add_argument("--torchfix", metavar="PYTHON", help="the interpreter of an environment that has TorchFix")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root, "code")
        shutil.copytree(options.folder, folder, ignore=shutil.ignore_patterns("*.pyc", "*.so"))
        cold = _folder(folder, options.rounds)
        _samples(folder, options.sample, options.torchfix, cold)
        _one_file(folder, options.rounds)


def _folder(folder: Path, rounds: int) -> Cost:
    """Times each tool on the folder; the cost of linting it for the first time."""
    files = sorted(folder.rglob("*.py"))
    print(f"{len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB, best of {rounds} rounds")
    commands = [
        Command(
            "ruff check, no cache",
            (sys.executable, "-m", "ruff", "check", "--no-cache", "--exit-zero", "--quiet", folder),
        ),
        Command("attn-guard lint, cold", (*GUARD, folder), "none"),
        Command("attn-guard lint, warm", (*GUARD, folder)),
        Command("attn-guard lint, one file changed", (*GUARD, folder), "changed"),
        Command("attn-guard lint, cold, one process", (*GUARD, "--jobs", "1", folder), "none"),
    ]
    _race(commands, folder, rounds)
    _table(commands, "ruff")
    cold = commands[1].best
    assert cold is not None
    return cold


def _one_file(folder: Path, rounds: int) -> None:
    mine = next(file for file in _shuffled(folder) if b"softmax" in file.read_bytes())
    print(f"\none file with attention: {mine.relative_to(folder)}, {mine.stat().st_size / 1e3:.0f} kB")
    commands = [
        Command("python -c 'import libcst'", (sys.executable, "-c", "import libcst")),
        Command("attn-guard lint FILE, not known", (*GUARD, mine), "none"),
        Command("attn-guard lint FILE, known", (*GUARD, mine)),
    ]
    _race(commands, folder, 3 * rounds)
    _table(commands, "import")


def _samples(folder: Path, size: int, torchfix: str | None, cold: Cost) -> None:
    every = sum(file.stat().st_size for file in folder.rglob("*.py"))
    sample, taken = [], 0
    for file in _shuffled(folder):
        if taken < size:
            sample.append(file)
            taken += file.stat().st_size
    print(
        f"\nsample of {len(sample)} files, {taken / 1e6:.2f} MB, drawn with seed {SEED}; processor seconds, "
        "for all files by bytes"
    )
    commands: list[tuple[str, tuple[str | Path, ...]]] = [("libcst.parse_module", (sys.executable, "-c", PARSE))]
    if torchfix:
        commands.append(("TorchFix", (torchfix, "-m", "torchfix", "--select", "ALL")))
    nothing = folder.parent / "nothing.py"
    nothing.touch()
    print(f"{'':38} {'sample s':>8} {'all s':>8} {'× attn-guard, cold':>19}")
    for name, words in commands:
        start = _run((*words, nothing), folder).processor
        seconds = _run((*words, *sample), folder).processor
        whole = start + (seconds - start) * every / taken
        print(f"{name:38} {seconds:8.1f} {whole:8.0f} {whole / cold.processor:19.1f}")


def _shuffled(folder: Path) -> list[Path]:
    files = sorted(folder.rglob("*.py"))
    random.Random(SEED).shuffle(files)
    return files


def _race(commands: Sequence[Command], folder: Path, rounds: int) -> None:
    for number in range(rounds):
        for command in commands:
            if command.prepare == "none":
                shutil.rmtree(folder.parent / ".attn_guard_cache", ignore_errors=True)
            elif command.prepare == "changed":
                _change(folder, number)
            cost = _run(command.words, folder.parent)
            command.best = min(filter(None, (command.best, cost)), key=lambda cost: cost.wall)


def _change(folder: Path, number: int) -> None:
    file = next(file for file in _shuffled(folder)[number:] if b"softmax" in file.read_bytes())
    file.write_bytes(file.read_bytes() + b"\n# changed\n")


def _run(words: Sequence[str | Path], folder: Path) -> Cost:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    # as installed: an interpreter that may not keep compiled files would compile this package anew in each run
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(words, cwd=folder, capture_output=True, check=False, env=environment)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{words[0]} ended with {done.returncode}:\n{done.stderr.decode()[-2000:]}")
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _table(commands: Sequence[Command], first: str) -> None:
    base = commands[0].best
    assert base is not None
    print(f"{'':38} {'wall s':>8} {f'× {first}':>9} {'processor s':>12}")
    for command in commands:
        for cost in _known(command):
            print(f"{command.name:38} {cost.wall:8.2f} {cost.wall / base.wall:9.2f} {cost.processor:12.2f}")


def _known(command: Command) -> Iterator[Cost]:
    if command.best is not None:
        yield command.best


if __name__ == "__main__":
    main()
