"""Comments that are written into source text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_guard.findings import Finding, Location
from attn_guard.lint.add_ignore import with_ignores
from attn_guard.lint.run import lint_source
from attn_guard.suppressions import Suppressions
from tests.gotchas.twins import source
from tests.report.reports import finding


def at(line: int, code: str = "ATN201") -> Finding:
    return finding(code=code, location=Location("model.py", line))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a = 1\nb = 2\n", "a = 1  # attn-guard: ignore[ATN201]\nb = 2\n"),
        ("a = 1", "a = 1  # attn-guard: ignore[ATN201]"),
        ("a = 1   \n", "a = 1  # attn-guard: ignore[ATN201]\n"),
        ("a = 1\r\nb = 2\r\n", "a = 1  # attn-guard: ignore[ATN201]\r\nb = 2\r\n"),
        ("a = 1  # why\n", "a = 1  # why  # attn-guard: ignore[ATN201]\n"),
        ("a = 1  # attn-guard: ignore[ATN101]\n", "a = 1  # attn-guard: ignore[ATN101, ATN201]\n"),
        ("a = 1  # attn-guard: ignore[ATN101] why\n", "a = 1  # attn-guard: ignore[ATN101, ATN201] why\n"),
        ("a = (\n    1,\n)\nb = 2\n", "a = (\n    1,\n)  # attn-guard: ignore[ATN201]\nb = 2\n"),
        ('a = """\ntext\n"""\n', 'a = """\ntext\n"""  # attn-guard: ignore[ATN201]\n'),
        ("a = 1 + \\\n    2\n", "a = 1 + \\\n    2  # attn-guard: ignore[ATN201]\n"),
    ],
)
def test_the_comment_closes_the_statement(before: str, after: str) -> None:
    assert with_ignores(before, [at(1)]) == after
    assert Suppressions.of(after).silences("ATN201", 1)


def test_a_reason_is_added() -> None:
    assert with_ignores("a = 1\n", [at(1)], "as published") == "a = 1  # attn-guard: ignore[ATN201] as published\n"


def test_codes_of_one_line_share_a_comment() -> None:
    text = with_ignores("a = 1\n", [at(1, "ATN203"), at(1, "ATN201"), at(1, "ATN203")])
    assert text == "a = 1  # attn-guard: ignore[ATN201, ATN203]\n"


def test_lines_that_are_not_there_change_nothing() -> None:
    assert with_ignores("a = 1\n", [at(0), at(7)]) == "a = 1\n"


@pytest.mark.parametrize("name", ["atn101_missing_scale", "atn202_mask_without_effect", "atn304_head_merge"])
def test_what_was_found_is_silent_afterwards(name: str) -> None:
    text = source("broken", name).read_text(encoding="utf-8")
    found = lint_source(text, "model.py", preview=True).findings
    assert found
    again = lint_source(with_ignores(text, found), "model.py", preview=True)
    assert again.findings == ()
    assert len(again.suppressed) == len(found)


@given(
    st.lists(st.sampled_from(["a = 1", "def f():", "    return 2", "", "# note", "b = (", ")", "'''", "x = \\"])),
    st.data(),
)
def test_any_text_keeps_its_lines(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(lines) + "\n"
    line = data.draw(st.integers(1, len(lines) + 1))
    changed = with_ignores(text, [at(line)]).splitlines()
    assert len(changed) == len(text.splitlines())
    assert sum(old != new for old, new in zip(text.splitlines(), changed, strict=True)) <= 1
