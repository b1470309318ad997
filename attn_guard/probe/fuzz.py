"""Searches sizes and their coincidences for faults that the ordinary sizes do not show."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache
from random import Random
from typing import TYPE_CHECKING

from attn_guard.errors import UsageError
from attn_guard.findings import Finding, Report
from attn_guard.probe.calling import Call
from attn_guard.probe.sizes import CallSizes, resized, sizes_of

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

# The largest sizes that are tried. Faults of coincidence show on small ones.
MOST_SAMPLES = 4
MOST_POSITIONS = 8

NOT_PROBED = "ATN903"  # the module raises at these sizes

Fault = tuple[str, str, int]  # code, path and line


def fuzzed(report: Report, call: Call, check_at: Callable[[Call], Report], examples: int, seed: int) -> Report:
    """The report of a call, with what is found at other sizes; each fault names the smallest sizes that show it.

    ``check_at`` checks another call of the same module. Where batch and time of the call cannot be told apart, the
    report is returned as it is. Raises `UsageError` where hypothesis is not installed.
    """
    _require_hypothesis()
    old = sizes_of(call)
    if old is None:
        note = "sizes were not searched: batch and time of the call cannot be told apart"
        return replace(report, assumptions=(*report.assumptions, note))

    @cache
    def faults(sizes: CallSizes) -> dict[Fault, Finding]:
        found = report if sizes == old else check_at(resized(call, old, sizes))
        return {_fault(finding): finding for finding in found if finding.fails or finding.code == NOT_PROBED}

    smallest = _smallest(lambda sizes: faults(sizes).keys(), sizes_like(old), examples, seed)
    known = {_fault(finding) for finding in report}
    new = [faults(sizes)[fault] for fault, sizes in smallest.items() if fault not in known]
    findings = [_with_sizes(finding, smallest.get(_fault(finding))) for finding in (*report.findings, *new)]
    return replace(report, findings=tuple(sorted(findings, key=lambda finding: finding.sort_key)))


def sizes_like(old: CallSizes) -> SearchStrategy[CallSizes]:
    """Sizes up to the limits, so small that equal ones are common; with a memory where the call has one."""
    from hypothesis import strategies as st

    lengths = st.integers(1, MOST_POSITIONS)
    return st.builds(CallSizes, st.integers(1, MOST_SAMPLES), lengths, st.none() if old.memory is None else lengths)


def _smallest(
    faults: Callable[[CallSizes], Collection[Fault]], sizes: SearchStrategy[CallSizes], examples: int, seed: int
) -> dict[Fault, CallSizes]:
    """Fault → the smallest sizes at which it shows, for every fault that the search meets."""
    from hypothesis import HealthCheck, Phase, find, settings
    from hypothesis.errors import NoSuchExample

    quiet = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    found: dict[Fault, CallSizes] = {}
    while True:
        try:
            shown = find(sizes, lambda tried: bool(_new(faults(tried), found)), settings=quiet, random=Random(seed))
        except NoSuchExample:
            return found
        found.update(dict.fromkeys(_new(faults(shown), found), shown))


def _new(faults: Collection[Fault], found: dict[Fault, CallSizes]) -> set[Fault]:
    return set(faults) - found.keys()


def _fault(finding: Finding) -> Fault:
    return finding.code, finding.location.path, finding.location.line


def _with_sizes(finding: Finding, sizes: CallSizes | None) -> Finding:
    return (
        finding
        if sizes is None
        else replace(finding, notes=(*finding.notes, f"the smallest sizes that show it: {sizes}"))
    )


def _require_hypothesis() -> None:
    if importlib.util.find_spec("hypothesis") is None:
        raise UsageError("fuzz= searches with hypothesis, which is not installed: pip install 'attn-guard[hypothesis]'")
