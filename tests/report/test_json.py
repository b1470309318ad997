"""What other programs read."""

from __future__ import annotations

import json
from typing import Any

from attn_guard.findings import Detector, Edit, Fix, Location, Report, Severity
from tests.report.reports import finding, site


def document(report: Report) -> Any:
    return json.loads(report.to_json())


def test_the_schema_has_a_version_and_all_parts() -> None:
    assert document(Report(files=2, regions=3, assumptions=("causal",))) == {
        "version": 1,
        "tool": "attn-guard",
        "title": "",
        "findings": [],
        "sites": [],
        "assumptions": ["causal"],
        "counts": {"error": 0, "warning": 0, "info": 0, "suppressed": 0, "files": 2, "regions": 3, "sites": 0},
    }


def test_a_finding_keeps_every_field() -> None:
    found = finding(
        "a.py",
        detector=Detector.PROBE,
        related=((Location("b.py", 3, 1, 3, 9), "normalised here"),),
        consequences=("ATN214",),
        leak_map=((1, 2), (1, 1)),
    )
    assert document(Report(findings=(found,)))["findings"] == [
        {
            "code": "ATN201",
            "name": "mask-after-softmax",
            "severity": "error",
            "message": "mask applied after the softmax",
            "location": {
                "path": "a.py",
                "line": 5,
                "column": 15,
                "end_line": 5,
                "end_column": 45,
                "module": "",
                "cell": 0,
            },
            "help": "fill the scores with -inf",
            "detector": "probe",
            "related": [
                {
                    "location": {
                        "path": "b.py",
                        "line": 3,
                        "column": 1,
                        "end_line": 3,
                        "end_column": 9,
                        "module": "",
                        "cell": 0,
                    },
                    "label": "normalised here",
                }
            ],
            "expected": "",
            "found": "",
            "notes": [],
            "consequences": ["ATN214"],
            "reproduce": "",
            "leak_map": [[1, 2], [1, 1]],
            "fix": None,
        }
    ]


def test_a_site_is_written_with_its_steps_and_sizes() -> None:
    written = document(Report(sites=(site(),)))["sites"][0]
    assert written["name"] == "h.0.attn"
    assert written["scale"] == {"value": 0.3536, "size": "head_dim", "power": -0.5, "text": ""}
    assert written["sizes"] == {"head_dim": 8}
    assert [(step["kind"], step["shape"]) for step in written["steps"]] == [("scores", [2, 8, 5, 5]), ("mask", None)]


def test_numbers_that_json_lacks_become_words() -> None:
    assert document(Report(sites=(site(),)))["sites"][0]["steps"][1]["fill"] == "-inf"


def test_findings_are_counted_by_severity() -> None:
    found = [finding(severity=severity) for severity in (Severity.ERROR, Severity.ERROR, Severity.INFO)]
    counts = document(Report(findings=tuple(found), suppressed=(finding(),)))["counts"]
    assert (counts["error"], counts["warning"], counts["info"], counts["suppressed"]) == (2, 0, 1, 1)


def test_a_fix_is_its_edits() -> None:
    edit = Edit(Location("a.py", 5, 15, 5, 18), "new")
    (found,) = document(Report(findings=(finding("a.py", fix=Fix((edit,), safe=False)),)))["findings"]
    place = {"path": "a.py", "line": 5, "column": 15, "end_line": 5, "end_column": 18, "module": "", "cell": 0}
    assert found["fix"] == {"edits": [{"location": place, "text": "new"}], "safe": False}
