"""What is said about the comments that silence findings."""

from __future__ import annotations

import pytest

from attn_guard.findings import Report, Severity
from attn_guard.lint.run import lint_source
from tests.gotchas.twins import marked_lines, source

NAME = "atn101_missing_scale"
BROKEN = source("broken", NAME).read_text(encoding="utf-8")
(BLAMED,) = marked_lines(source("broken", NAME))


def lint(comment: str, line: int = BLAMED, **options: list[str]) -> Report:
    lines = BROKEN.splitlines()
    lines[line - 1] = f"{lines[line - 1].partition('  #')[0]}  {comment}"
    return lint_source("\n".join(lines), "model.py", select=options.get("select", ()), ignore=options.get("ignore", ()))


def test_a_comment_that_silences_something_is_fine() -> None:
    report = lint("# attn-guard: ignore[ATN101]", select=["ATN1", "ATN9", "ATN901"])
    assert report.findings == ()
    assert [found.code for found in report.suppressed] == ["ATN101"]


def test_a_code_that_does_not_exist() -> None:
    report = lint("# attn-guard: ignore[ATN101, ATN999]")
    (found,) = report
    assert (found.code, found.name, found.severity) == ("ATN902", "unknown-code", Severity.WARNING)
    assert found.message == "there is no code ATN999"
    line = BROKEN.splitlines()[BLAMED - 1].partition("  #")[0]
    assert found.location.line == BLAMED
    assert found.location.column == len(line) + 3 + len("# attn-guard: ignore[ATN101, ")
    assert found.location.end_column == found.location.column + len("ATN999")


def test_a_slip_of_the_key_is_guessed() -> None:
    (found,) = [found for found in lint("# attn-guard: ignore[ATN1011]") if found.code == "ATN902"]
    assert found.help == "did you mean ATN101?"


@pytest.mark.parametrize("comment", ["# noqa: E501, F401", "# noqa: E501  # attn-guard: ignore[ATN101]"])
def test_codes_of_other_tools_are_no_business_of_ours(comment: str) -> None:
    assert "ATN902" not in lint(comment).codes


def test_codes_of_other_tools_in_a_comment_of_ours_are_unknown() -> None:
    assert "ATN902" in lint("# attn-guard: ignore[E501]").codes


def test_an_unused_comment_is_said_where_it_is_asked_for() -> None:
    (found,) = lint("# attn-guard: ignore[ATN102]", line=3, select=["ATN102", "ATN901"])
    assert (found.code, found.location.line) == ("ATN901", 3)
    assert found.message == "ATN102 is silenced here, but not found"


def test_a_comment_that_a_probe_may_need_is_left_alone() -> None:
    assert "ATN901" not in lint("# attn-guard: ignore[ATN102]", line=3).codes


def test_a_comment_in_a_file_without_attention_counts_as_well() -> None:
    report = lint_source("a = 1  # attn-guard: ignore[ATN999]\n", "plain.py")
    assert [found.code for found in report] == ["ATN902"]


@pytest.mark.parametrize("options", [{"ignore": ["ATN902"]}, {"ignore": ["ATN9"]}, {"select": ["ATN101"]}])
def test_it_can_be_left_out(options: dict[str, list[str]]) -> None:
    assert "ATN902" not in lint("# attn-guard: ignore[ATN101, ATN999]", BLAMED, **options).codes


def test_it_can_be_silenced_itself() -> None:
    report = lint("# attn-guard: ignore[ATN101, ATN999, ATN902]")
    assert report.findings == ()
    assert sorted(found.code for found in report.suppressed) == ["ATN101", "ATN902"]
