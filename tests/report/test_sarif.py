"""What code scanning services read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from attn_guard.findings import Detector, Edit, Fix, Location, Report, Severity
from attn_guard.lint.run import lint_paths
from attn_guard.report import render
from tests.gotchas.twins import EXAMPLES
from tests.report.reports import SOURCE, finding


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that the findings of a test are about, in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my model.py"
    path.write_text(SOURCE)
    return path


def run(report: Report) -> Any:
    document = json.loads(render(report, "sarif"))
    assert document["version"] == "2.1.0"
    (only,) = document["runs"]
    return only


def test_a_result_has_rule_level_message_and_place(model: Path) -> None:
    (result,) = run(Report(findings=(finding(str(model), expected="-inf", found="0"),)))["results"]
    assert result["ruleId"] == "ATN201"
    assert result["level"] == "error"
    assert result["message"]["text"] == (
        "mask applied after the softmax (expected -inf, found 0). Fix: fill the scores with -inf"
    )
    assert result["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "my%20model.py"},
                "region": {"startLine": 5, "startColumn": 15, "endLine": 5, "endColumn": 45},
            }
        }
    ]
    assert result["properties"] == {"detector": "lint"}


def test_a_fix_is_a_change_of_the_file(model: Path) -> None:
    edits = (Edit(Location(str(model), 5, 15, 5, 22), "scores"), Edit(Location(str(model), 6, 5, 6, 5), "# "))
    (result,) = run(Report(findings=(finding(str(model), fix=Fix(edits)),)))["results"]
    (fix,) = result["fixes"]
    assert fix["description"] == {"text": "fill the scores with -inf"}
    (change,) = fix["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "my%20model.py"}
    assert change["replacements"] == [
        {
            "deletedRegion": {"startLine": 5, "startColumn": 15, "endLine": 5, "endColumn": 22},
            "insertedContent": {"text": "scores"},
        },
        {
            "deletedRegion": {"startLine": 6, "startColumn": 5, "endLine": 6, "endColumn": 5},
            "insertedContent": {"text": "# "},
        },
    ]


def test_rules_are_described_once_and_pointed_at(model: Path) -> None:
    found = [finding(str(model)), finding(str(model), code="ATN101", name="missing-scale"), finding(str(model))]
    only = run(Report(findings=tuple(found)))
    rules = only["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == ["ATN101", "ATN201"]
    assert [rules[result["ruleIndex"]]["id"] for result in only["results"]] == ["ATN201", "ATN101", "ATN201"]
    assert rules[1]["name"] == "MaskAfterSoftmax"
    assert rules[1]["fullDescription"]["text"].startswith("Finds ")
    assert "---" not in rules[1]["fullDescription"]["text"]


@pytest.mark.parametrize(
    ("severity", "level"), [(Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.INFO, "note")]
)
def test_levels(model: Path, severity: Severity, level: str) -> None:
    (result,) = run(Report(findings=(finding(str(model), severity=severity),)))["results"]
    assert result["level"] == level


def test_fingerprints_outlive_lines_added_above(model: Path) -> None:
    def mark(line: int) -> str:
        found = finding(str(model), location=Location(str(model), line, 15, line, 45))
        (result,) = run(Report(findings=(found,)))["results"]
        value: str = result["partialFingerprints"]["attnGuard/v1"]
        return value

    before = mark(5)
    model.write_text("import torch\n\n" + SOURCE)
    assert mark(7) == before
    assert mark(4) != before


def test_a_second_place_is_related(model: Path) -> None:
    related = ((Location(str(model), 3, 5, 3, 12), "normalised here"),)
    (result,) = run(Report(findings=(finding(str(model), related=related),)))["results"]
    (place,) = result["relatedLocations"]
    assert place["message"]["text"] == "normalised here"
    assert place["physicalLocation"]["region"]["startLine"] == 3


def test_silenced_findings_are_kept_as_suppressed(model: Path) -> None:
    kept, silenced = run(Report(findings=(finding(str(model)),), suppressed=(finding(str(model)),)))["results"]
    assert "suppressions" not in kept
    assert silenced["suppressions"] == [{"kind": "inSource"}]


def test_a_finding_without_a_file_names_its_module() -> None:
    found = finding("<probe>", location=Location("<probe>", 0, module="h.0.attn"), detector=Detector.PROBE)
    (result,) = run(Report(findings=(found,)))["results"]
    assert result["locations"] == [{"logicalLocations": [{"fullyQualifiedName": "h.0.attn", "kind": "module"}]}]


def test_a_file_elsewhere_has_a_uri_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (result,) = run(Report(findings=(finding(str(tmp_path / "model.py")),)))["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == (tmp_path / "model.py").resolve().as_uri()


def test_the_published_schema_accepts_the_reports(model: Path) -> None:
    """Runs where ATTN_GUARD_SARIF_SCHEMA is the path of sarif-schema-2.1.0.json as OASIS publishes it."""
    published = os.environ.get("ATTN_GUARD_SARIF_SCHEMA")
    if published is None:
        pytest.skip("ATTN_GUARD_SARIF_SCHEMA is not set")
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(Path(published).read_text(encoding="utf-8"))
    related = ((Location(str(model), 3), "here"),)
    probed = finding("<probe>", location=Location("<probe>", 0, module="h"), severity=Severity.INFO)
    for report in (
        Report(),
        lint_paths([EXAMPLES / "broken"], preview=True),
        Report(findings=(finding(str(model), related=related), probed), suppressed=(finding(str(model)),)),
    ):
        jsonschema.validate(json.loads(render(report, "sarif")), schema)
