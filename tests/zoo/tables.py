"""Prints what the zoo found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.zoo.probing import HOLDS_NONE

Result = dict[str, Any]
BUILT = ("instance", "ran", "crashed")


def show(results: Sequence[Result]) -> None:
    """Every finding and every class that was declined, then the totals."""
    ran = [result for result in results if result["reached"] == "ran"]
    print("\nFindings at error and warning")
    for line in dict.fromkeys(line for result in ran for line in _failing(result)):
        print(line)
    classes = distinct_classes(ran)
    print("\nAttention classes that were declined")
    for part in classes:
        if part["declined"]:
            print(f"{part['name']:44} {part['path']:48} {_reason(part)}")
    print("\nTypes that did not run")
    for result in sorted(results, key=lambda result: (result["reached"], result["kind"])):
        if result["reached"] != "ran":
            print(f"{result['reached']:14} {result['kind']:40} {result['error'][:140]}")
    print(f"\n{'':16}{'types':>8}{'built':>8}{'ran':>8}{'crashed':>8}{'sites':>8}{'classes':>8}{'probed':>8}")
    libraries = dict.fromkeys(_library(result) for result in results)
    for library in libraries:
        _row(library, [result for result in results if _library(result) == library])
    if len(libraries) > 1:
        _row("all", results)
    _totals(results, ran, classes)


def distinct_classes(ran: Sequence[Result]) -> list[Result]:
    """Each attention class once, where it was probed if it was probed anywhere; what is only called attention is left
    out."""
    parts = [part for result in ran for part in result["classes"] if part["declined"] != HOLDS_NONE]
    last = {part["name"]: part for part in sorted(parts, key=lambda part: not part["declined"])}
    return list(last.values())


def _library(result: Result) -> str:
    library, colon, _ = result["kind"].partition(":")
    return library if colon else "transformers"


def _reason(part: Result) -> str:
    """Why a class was declined, without the place."""
    text: str = part["declined"]
    return text.partition(": ")[2][:160] if text.startswith("/") else text[:160]


def _failing(result: Result) -> Iterator[str]:
    for part in (result["whole"], *result["classes"]):
        for finding in part["findings"]:
            if finding["severity"] != "info":
                where = part["name"] if part["path"] else "whole"
                numbers = f" (expected {finding['expected']}, found {finding['found']})" if finding["found"] else ""
                place = f"{result['kind']:22} {where:32} {finding['place']}"
                yield f"{finding['code']} {finding['severity']:7} {place}  {finding['message']}{numbers}"


def _row(name: str, results: Sequence[Result]) -> None:
    reached = Counter(result["reached"] for result in results)
    ran = [result for result in results if result["reached"] == "ran"]
    classes = distinct_classes(ran)
    probed = sum(not part["declined"] for part in classes)
    sites = sum(result["whole"]["sites"] for result in ran)
    numbers = (len(results), sum(reached[stage] for stage in BUILT), len(ran), reached["crashed"], sites, len(classes))
    share = f" {probed / len(classes):7.1%}" if classes else ""
    print(f"{name:16}" + "".join(f"{number:8}" for number in (*numbers, probed)) + share)


def _totals(results: Sequence[Result], ran: Sequence[Result], classes: Sequence[Result]) -> None:
    reasons = Counter(_reason(part) for part in classes if part["declined"])
    print("\ndeclined:", "; ".join(f"{count} {reason}" for reason, count in reasons.most_common()) or "none")
    named = {part["name"] for result in ran for part in result["classes"] if part["declined"] == HOLDS_NONE}
    print(f"called attention, and not counted since {HOLDS_NONE}: {', '.join(sorted(named)) or 'none'}")
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
