"""One fault, one finding: what follows from it is listed under it."""

from __future__ import annotations

from attn_guard.findings import Finding, Location, Severity
from attn_guard.gotchas.registry import entries
from attn_guard.probe.causes import by_cause


def finding(code: str, line: int = 1, severity: Severity = Severity.ERROR, **more: object) -> Finding:
    return Finding(code, code.lower(), severity, "message", Location("model.py", line), "help", **more)  # type: ignore[arg-type]


def codes(*findings: Finding) -> list[tuple[str, tuple[str, ...]]]:
    return [(kept.code, kept.consequences) for kept in by_cause(findings)]


def test_a_consequence_goes_under_its_cause() -> None:
    assert codes(finding("ATN201", 3), finding("ATN214", 5)) == [("ATN201", ("ATN214",))]
    assert codes(finding("ATN214", 5), finding("ATN201", 3)) == [("ATN201", ("ATN214",))]


def test_a_consequence_without_its_cause_stays() -> None:
    assert codes(finding("ATN214"), finding("ATN101")) == [("ATN214", ()), ("ATN101", ())]


def test_consequences_that_did_not_show_are_not_claimed() -> None:
    assert codes(finding("ATN201", consequences=("ATN212", "ATN214"))) == [("ATN201", ())]


def test_a_remark_explains_nothing() -> None:
    remark = finding("ATN203", severity=Severity.INFO)
    assert codes(remark, finding("ATN214")) == [("ATN203", ()), ("ATN214", ())]


def test_the_cause_shows_the_leak_map_of_its_consequence() -> None:
    (kept,) = by_cause([finding("ATN201"), finding("ATN214", leak_map=((1, 2), (1, 1)))])
    assert kept.leak_map == ((1, 2), (1, 1))


def test_one_finding_per_code_and_place() -> None:
    weak = finding("ATN203", severity=Severity.WARNING)
    strong = finding("ATN203", found="0.3")
    assert [kept.found for kept in by_cause([weak, strong])] == ["0.3"]
    assert len(by_cause([finding("ATN101", 1), finding("ATN101", 2)])) == 2


EXPLAINS = {code: entry.gotcha.explains for code, entry in entries().items()}


def test_every_code_is_known_and_none_explains_itself() -> None:
    assert sum(map(len, EXPLAINS.values())) > 0
    for cause, explained in EXPLAINS.items():
        assert set(explained) <= entries().keys(), cause
        assert cause not in explained


def test_no_two_codes_explain_each_other() -> None:
    pairs = {(cause, code) for cause, explained in EXPLAINS.items() for code in explained}
    assert not {(right, left) for left, right in pairs} & pairs
