"""One line per finding."""

from __future__ import annotations

from attn_guard.findings import Location, Report
from attn_guard.report import render
from tests.report.reports import finding


def test_each_finding_is_one_line_that_editors_can_follow() -> None:
    probed = finding(code="ATN101", name="missing-scale", location=Location("b.py", 7, module="h.0.attn"))
    assert render(Report(findings=(finding("a.py"), probed), files=2), "concise").splitlines() == [
        "a.py:5:15: ATN201 mask-after-softmax: mask applied after the softmax",
        "b.py:7: ATN101 missing-scale: mask applied after the softmax (in h.0.attn)",
        "2 errors in 2 files",
    ]
