"""Prints what the zoo found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

Result = dict[str, Any]
BUILT = ("instance", "ran", "crashed")


def show(results: list[Result]) -> None:
    """Every finding and every class that was declined, then the totals."""
    ran = [result for result in results if result["reached"] == "ran"]
    print("\nFindings at error and warning")
    for line in dict.fromkeys(line for result in ran for line in _failing(result)):
        print(line)
    classes = distinct_classes(ran)
    declined = [part for part in classes.values() if part["declined"]]
    print("\nAttention classes that were declined")
    for part in declined:
        print(f"{part['name']:44} {part['path']:48} {part['declined'][:160]}")
    print("\nTypes that did not run")
    for result in sorted(results, key=lambda result: (result["reached"], result["kind"])):
        if result["reached"] != "ran":
            print(f"{result['reached']:14} {result['kind']:32} {result['error'][:140]}")
    _totals(results, ran, classes, declined)


def distinct_classes(ran: list[Result]) -> dict[str, Result]:
    """Each attention class once: where it was probed, if it was probed anywhere."""
    parts = [part for result in ran for part in result["classes"]]
    return {part["name"]: part for part in sorted(parts, key=lambda part: not part["declined"], reverse=True)}


def _failing(result: Result) -> Iterator[str]:
    for part in (result["whole"], *result["classes"]):
        for finding in part["findings"]:
            if finding["severity"] != "info":
                where = part["name"] if part["path"] else "whole"
                numbers = f" (expected {finding['expected']}, found {finding['found']})" if finding["found"] else ""
                place = f"{result['kind']:22} {where:32} {finding['place']}"
                yield f"{finding['code']} {finding['severity']:7} {place}  {finding['message']}{numbers}"


def _totals(results: list[Result], ran: list[Result], classes: dict[str, Result], declined: list[Result]) -> None:
    reached = Counter(result["reached"] for result in results)
    built = sum(reached[stage] for stage in BUILT)
    print(
        f"\n{len(results)} types tried, {built} instantiated, {len(ran)} ran, {reached['crashed']} crashed in the probe"
    )
    seen = sum(not result["whole"]["declined"] for result in ran)
    print(f"{sum(result['whole']['sites'] for result in ran)} attention computations; {seen} models show attention")
    probed = len(classes) - len(declined)
    print(f"{len(classes)} attention classes ran, {probed} probed ({probed / max(1, len(classes)):.1%})")
    found = Counter(
        f"{finding['code']} {finding['severity']}"
        for result in ran
        for part in (result["whole"], *result["classes"])
        for finding in part["findings"]
    )
    print("findings, in whole models and classes:", dict(sorted(found.items())))
    slow = sorted(results, key=lambda result: -result["total"])[:8]
    print(f"{sum(result['total'] for result in results):.0f} s of processor time; slowest: ", end="")
    print(", ".join(f"{result['kind']} {result['total']:.0f} s" for result in slow))
