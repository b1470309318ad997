"""What people see of a finding and of a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_guard.findings import Location, Report, Severity
from attn_guard.report import text
from tests.report.reports import SOURCE, finding, site


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    return path


def rendered(report: Report) -> str:
    return text.render(report, ascii=False)


def test_a_finding_shows_place_source_numbers_and_fix(model: Path) -> None:
    found = finding(
        str(model),
        related=((Location(str(model), 3, 15, 3, 33), "normalised here"),),
        expected="rows that sum to 1",
        found="0.61",
        notes=("blocked keys still count in the denominator",),
        reproduce="attn-guard check model.py:Attention(64, 8)",
    )
    assert rendered(Report(findings=(found,), files=1)) == (
        """\
error[ATN201] mask-after-softmax: mask applied after the softmax
 --> model.py:5:15
  |
3 |     weights = scores.softmax(-1)
  |               ------------------ normalised here
4 |
5 |     weights = weights.masked_fill(mask, 0.0)
  |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
6 |     return weights @ value
  |
  expected: rows that sum to 1
  found:    0.61
  help: fill the scores with -inf
  note: blocked keys still count in the denominator
  reproduce: attn-guard check model.py:Attention(64, 8)

1 error in 1 file"""
    )


def test_a_place_without_columns_underlines_the_line(model: Path) -> None:
    lines = rendered(Report(findings=(finding(str(model), location=Location(str(model), 2)),))).splitlines()
    assert lines[4] == "2 |     scores = query @ key.transpose(-2, -1)"
    assert lines[5] == "  |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"


def test_a_span_over_several_lines_is_underlined_on_each(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("weights = softmax(\n    scores,\n    -1,\n)\n")
    lines = rendered(Report(findings=(finding(str(path), location=Location(str(path), 1, 11, 4, 2)),))).splitlines()
    assert [line.partition("|")[2] for line in lines[3:11]] == [
        " weights = softmax(",
        "           ^^^^^^^^",
        "     scores,",
        "     ^^^^^^^",
        "     -1,",
        "     ^^^",
        " )",
        " ^",
    ]


def test_underlines_stand_under_tabs_and_wide_characters(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("\t注意 = scores\n", encoding="utf-8")
    lines = rendered(Report(findings=(finding(str(path), location=Location(str(path), 1, 7, 1, 13)),))).splitlines()
    assert lines[3] == "1 |     注意 = scores"
    assert lines[4].partition("| ")[2] == " " * (4 + 4 + 3) + "^^^^^^"


def test_a_second_place_in_another_file_gets_its_own_excerpt(model: Path) -> None:
    other = model.with_name("masks.py")
    other.write_text("mask = torch.ones(5, 5).triu(1)\n")
    found = finding(str(model), related=((Location(str(other), 1, 8, 1, 32), "built here"),))
    shown = rendered(Report(findings=(found,), files=2))
    assert shown.index("--> model.py:5:15") < shown.index("::: masks.py:1:8")
    assert "------------------------ built here" in shown


def test_a_file_that_cannot_be_read_gives_its_place_only() -> None:
    found = finding("gone.py", related=((Location("gone.py", 3), "normalised here"),))
    assert rendered(Report(findings=(found,), files=1)) == (
        """\
error[ATN201] mask-after-softmax: mask applied after the softmax
 --> gone.py:5:15
  = normalised here
  help: fill the scores with -inf

1 error in 1 file"""
    )


def test_a_line_beyond_the_end_of_the_file_gives_the_place_only(model: Path) -> None:
    shown = rendered(Report(findings=(finding(str(model), location=Location(str(model), 99)),)))
    assert "model.py:99\n  help:" in shown


def test_a_leak_is_drawn_as_a_grid_of_glyphs() -> None:
    found = finding("gone.py", leak_map=((1, 2, 0), (1, 1, 2), (1, 1, 1)))
    grid = [
        "  out 0 1 2  input position",
        "    0 ■ ✗ ·",
        "    1 ■ ■ ✗",
        "    2 ■ ■ ■",
        "      ■ influences   ✗ influences, but must not   · no influence",
    ]
    assert "\n".join(grid) in rendered(Report(findings=(found,)))


def test_the_grid_is_ascii_where_the_encoding_demands_it() -> None:
    found = finding("gone.py", leak_map=((1, 2, 0),))
    shown = text.render(Report(findings=(found,)), ascii=True)
    assert "    0 o X ." in shown
    assert shown.isascii()


def test_a_wide_map_is_cut_and_says_so() -> None:
    found = finding("gone.py", leak_map=tuple((1,) * 40 for _ in range(40)))
    shown = rendered(Report(findings=(found,)))
    assert "the first 24 of 40 positions" in shown
    assert max(map(len, shown.splitlines())) < 100


def test_consequences_are_named() -> None:
    found = finding("gone.py", consequences=("ATN101", "ATN999"))
    assert "note: this can also bring about ATN101 missing-scale, ATN999" in rendered(Report(findings=(found,)))


def test_the_module_that_is_to_blame_is_named() -> None:
    shown = rendered(Report(findings=(finding("gone.py", location=Location("gone.py", 5, module="h.0.attn")),)))
    assert "--> gone.py:5 in h.0.attn" in shown


def test_a_probe_report_lists_sites_and_assumptions() -> None:
    encoder = site("encoder", scale=None, steps=(), causal=None, cross=True)
    report = Report(sites=(site(causal=True), encoder), assumptions=("causal, from the triangular mask",))
    assert rendered(report) == (
        """\
attention sites
  h.0.attn  scores (2, 8, 5, 5)  scale head_dim**-0.5 = 0.3536  mask, causal
  encoder                        scale unknown                  no mask, cross

assumed: causal, from the triangular mask

no mistakes found in 2 attention sites"""
    )


def test_a_lint_report_does_not_list_sites() -> None:
    assert rendered(Report(sites=(site(),), files=3)) == "no mistakes found in 3 files"


@pytest.mark.parametrize(
    ("severities", "line"),
    [
        ((), "no mistakes found in 3 files"),
        (("error",), "1 error in 3 files"),
        (("error", "error", "warning"), "2 errors, 1 warning in 3 files"),
        (("info",), "1 to know in 3 files"),
    ],
)
def test_the_closing_line_counts(severities: tuple[str, ...], line: str) -> None:
    found = tuple(finding(severity=Severity(severity)) for severity in severities)
    assert rendered(Report(findings=found, files=3)).splitlines()[-1] == line


def test_the_closing_line_says_what_was_silenced() -> None:
    assert rendered(Report(files=1, suppressed=(finding(),))) == "no mistakes found in 1 file (1 silenced)"


def test_a_module_without_attention_is_not_called_clean() -> None:
    assert rendered(Report()) == "no attention found"


def test_colour_adds_escapes_and_nothing_else(model: Path) -> None:
    import re

    report = Report(findings=(finding(str(model), leak_map=((1, 2),)),), files=1)
    colored = text.render(report, color=True, ascii=False)
    assert "\033[" in colored
    assert re.sub(r"\033\[[\d;]*m", "", colored) == rendered(report)
    assert "\033[" not in rendered(report)


def test_printing_a_report_shows_the_full_text(model: Path) -> None:
    report = Report(findings=(finding(str(model)),), files=1)
    assert str(report) == text.render(report)
