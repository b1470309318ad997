"""Lints a folder of real code and prints what it took and what was found: ``python tests/bench/lint_corpus.py
FOLDER``."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from attn_guard import lint


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--preview", action="store_true")
    parser.add_argument("--list", action="store_true", help="print every finding with its line of source")
    arguments = parser.parse_args()

    start = time.perf_counter()
    report = lint(arguments.folder, preview=arguments.preview)
    seconds = time.perf_counter() - start

    complete = [site for site in report.sites if site.context]
    scaled = [site for site in complete if site.scale]
    print(f"files {report.files} · regions parsed {report.regions} · {seconds:.1f} s")
    print(f"sites {len(report.sites)} · complete {len(complete)} · scale known {len(scaled)}")
    for code, count in sorted(report.codes.items()):
        print(f"{code} {count}")
    if arguments.list:
        for finding in report:
            place = finding.location
            line = Path(place.path).read_text(encoding="utf-8", errors="replace").splitlines()[place.line - 1]
            print(f"{finding.code} {finding.severity} {place}: {finding.message}\n    {line.strip()}")


if __name__ == "__main__":
    main()
