"""A first look: lints and probes the broken examples that come with the package, and draws a leak."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from attn_guard.gotchas.registry import Entry, entries, examples
from attn_guard.lint.run import lint_paths
from attn_guard.report import concise, text
from attn_guard.report.style import Style, counted

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Report

# The mistakes that are shown: those that people make most.
CODES = (
    "ATN101",
    "ATN102",
    "ATN201",
    "ATN202",
    "ATN203",
    "ATN205",
    "ATN212",
    "ATN214",
    "ATN301",
    "ATN302",
    "ATN303",
    "ATN304",
)
SHOWN = "ATN201"  # the mistake whose source is shown in full
DRAWN = "ATN214"  # the mistake whose leak is drawn

NEXT = """\
next:
  attn-guard lint src/                          read your own sources
  attn-guard check "model.py:Attention(64, 8)"  run one of your modules
  attn-guard xray "model.py:Attention(64, 8)"   see its anatomy, without judgement
  pytest --attn-guard                           both, in your own test suite
  attn-guard explain ATN201                     what a code means"""


def demo(style: Style) -> Iterator[str]:
    """The demonstration, piece by piece, so that it can be read while it runs."""
    with contextlib.chdir(examples()):  # for short paths
        yield from _lint(style)
        if importlib.util.find_spec("torch") is None:
            yield "\n2  the second part runs modules and needs torch: pip install 'attn-guard[torch]'\n"
        else:
            yield from _probes(style)
    yield f"\n{NEXT}"


def _lint(style: Style) -> Iterator[str]:
    start = time.perf_counter()
    report = lint_paths([Path("broken", entries()[code].broken.name) for code in CODES])
    yield style.paint("1  attn-guard lint broken/", "bold") + "   reads source; nothing is run\n"
    yield "\n".join(concise.line(found, style) for found in report.findings)
    yield f"{text.closing(report, style)}, {time.perf_counter() - start:.1f} s\n"
    yield "one of them in full:\n"
    yield from (text.finding(found, style) for found in report.findings if found.code == SHOWN)


def _probes(style: Style) -> Iterator[str]:
    yield "\n" + style.paint("2  attn-guard check broken/*.py:build()", "bold") + "   runs each module\n"
    start = time.perf_counter()
    found: list[Finding] = []
    for entry in (entries()[code] for code in CODES):
        report = _probe(entry)
        found += report.findings
        yield "\n".join(concise.line(each, style) for each in report.findings if each.code == entry.gotcha.code)
    yield f"{counted(len(CODES), 'module')} probed, {time.perf_counter() - start:.1f} s\n"
    leak = next((each for each in found if each.code == DRAWN and each.leak_map), None)
    if leak is not None:
        yield "and where the future leaks into the past:\n"
        yield text.finding(leak, style)


def _probe(entry: Entry) -> Report:
    from attn_guard.probe.check import check
    from attn_guard.probe.target import load

    return check(load(f"{entry.broken}:build()"))
