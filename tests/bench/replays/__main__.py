"""Replays public faults: checks the faulty revision of each file and prints whether the mistake is named.

Run: ``python tests/bench/replays FOLDER [IDS]`` from the root of the repository. FOLDER holds one folder for each
fault, with its files as they stand at the pinned commit; ``--list`` prints what to fetch. Nothing public is part of
this bench: its targets only say how a module is built and called, and what its author would declare.

With ``--lint`` the faulty file is read and not run. Then the faults count of which one code has a lint half.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch

from attn_guard import Finding, check, lint
from attn_guard.findings import Detector
from attn_guard.gotchas import registry
from tests.bench.replays.faults import FAULTS, Fault
from tests.bench.replays.kit import Files, cells

SECONDS = 120


@dataclass(frozen=True, slots=True)
class Replay:
    """What was found in the faulty revision, or why it could not be run."""

    fault: Fault
    findings: tuple[Finding, ...] = ()
    error: str = ""

    @property
    def hits(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.code in self.fault.codes]

    @property
    def exact(self) -> bool:
        """Whether a finding with a right code points to a faulty line."""
        file = Path(self.fault.files[0]).with_suffix(".py").name
        places = [hit.location for hit in self.hits]
        return any(Path(place.path).name == file and self.fault.points_to(place.line) for place in places)

    @property
    def verdict(self) -> str:
        if self.error:
            return "not run"
        return "found" if self.exact else "found elsewhere" if self.hits else "missed"

    @property
    def said(self) -> str:
        if self.error:
            return self.error
        shown = [f"{finding.code}@{place(finding)} {finding.severity}" for finding in self.findings]
        return ", ".join(shown) or "nothing"


def main() -> int:
    options = arguments()
    chosen = [fault for fault in FAULTS if not options.ids or fault.id in options.ids]
    if options.list:
        for fault in chosen:
            print(f"{fault.id} {fault.repository} {fault.commit} {' '.join(fault.files)} {fault.also}".rstrip())
        return 0
    if not options.folder:
        print("which folder holds the files? --list prints what to fetch", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    replays = []
    for fault in chosen:
        replays.append(read(fault, options.folder) if options.lint else replay(fault, options.folder))
        print_row(replays[-1], options.messages)
    print_totals(replays)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/bench/replays", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--list", action="store_true", help="print repository, commit and files of each fault")
    parser.add_argument("--lint", action="store_true", help="read the faulty files in place of running them")
    parser.add_argument("--messages", action="store_true", help="print the message of every finding")
    return parser.parse_intermixed_args()


def replay(fault: Fault, folder: Path) -> Replay:
    """Checks one fault in a process of its own, since public files of one name may differ."""
    if fault.declined:
        return Replay(fault, error=fault.declined)
    if not (folder / fault.id / fault.files[0]).exists():
        return Replay(fault, error=f"no {fault.files[0]} in {folder / fault.id}")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        try:
            return pool.apply_async(run, (fault, folder)).get(SECONDS)
        except multiprocessing.TimeoutError:
            return Replay(fault, error=f"over {SECONDS} s")


def read(fault: Fault, folder: Path) -> Replay:
    """Lints the faulty file; a notebook as one file, in whose lines its faults are counted."""
    known = registry.entries()
    if not any(Detector.LINT in known[code].detectors for code in fault.codes):
        return Replay(fault, error=fault.declined or "not to be read from source")
    if fault.unreadable:
        return Replay(fault, error=fault.unreadable)
    file = folder / fault.id / fault.files[0]
    if not file.exists():
        return Replay(fault, error=f"no {fault.files[0]} in {folder / fault.id}")
    report = lint([cells(file) if file.suffix == ".ipynb" else file], preview=in_preview(fault, Detector.LINT))
    return Replay(fault, tuple(report))


def run(fault: Fault, folder: Path) -> Replay:
    warnings.simplefilter("ignore")
    try:
        target = importlib.import_module(f"tests.bench.replays.targets.{fault.id.lower()}")
        module = target.build(Files(folder / fault.id))
        args, kwargs = target.inputs()
        findings = check(module, args, kwargs, preview=in_preview(fault, Detector.PROBE), **target.PROMISES)
    except Exception as error:
        return Replay(fault, error=f"{type(error).__name__}: {error}")
    return Replay(fault, tuple(findings))


def in_preview(fault: Fault, reader: Detector) -> bool:
    """Whether every code of the fault has to be asked for."""
    known = [entry.gotcha for code, entry in registry.entries().items() if code in fault.codes]
    return bool(known) and all(reader in gotcha.preview for gotcha in known)


def place(finding: Finding) -> str:
    return f"{Path(finding.location.path).name}:{finding.location.line}"


def print_row(replay: Replay, messages: bool) -> None:
    fault = replay.fault
    expected = f"{' or '.join(fault.codes)} at {fault.lines}" if fault.codes else ""
    print(f"{fault.id} {fault.kind:20} {expected:34} {replay.verdict:15} {replay.said}", flush=True)
    for finding in replay.findings if messages else ():
        print(f"     {finding.code} {finding.location}: {finding.message}")


def print_totals(replays: list[Replay]) -> None:
    ran = [replay for replay in replays if not replay.error]
    found = [replay for replay in ran if replay.hits]
    exact = [replay for replay in ran if replay.exact]
    print(f"\nfaults {len(replays)} · can be run {len(ran)}", end="")
    if ran:
        print(f" · found {len(found)} ({len(found) / len(ran):.0%}) · at the right line {len(exact)}", end="")
    print()


if __name__ == "__main__":
    sys.exit(main())
