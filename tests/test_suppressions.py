"""Which comments silence which findings."""

from __future__ import annotations

import pytest

from attn_guard.suppressions import Suppressions


def silenced(source: str, code: str = "ATN201") -> list[int]:
    """The lines on which a code is silenced."""
    found = Suppressions.of(source)
    return [line for line in range(1, source.count("\n") + 2) if found.silences(code, line)]


@pytest.mark.parametrize(
    "comment",
    [
        "# attn-guard: ignore[ATN201]",
        "# attn-guard: ignore[ATN201] rows are renormalised below",
        "#attn-guard:ignore[ATN201]",
        "# attn-guard: ignore[ATN101, ATN201]",
        "# attn-guard: ignore[atn201]",
        "# noqa: ATN201",
        "# NOQA:ATN201",
        "# noqa: E501, ATN201",
        "# noqa: E501 ATN201 the rows are renormalised",
        "# type: ignore  # noqa: ATN201",
        "# noqa: E501  # attn-guard: ignore[ATN201] on purpose",
    ],
)
def test_a_comment_silences_its_code_on_its_line(comment: str) -> None:
    assert silenced(f"a = 1\nb = 2  {comment}\nc = 3\n") == [2]


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "# noqa: E501",
        "# attn-guard: ignore",
        "# attn-guard: ignore[]",
        "# attn-guard: ignore[ATN2010]",
        "# attn-guard: ignore[ATN202]",
        "# ATN201",
    ],
)
def test_other_comments_silence_nothing(comment: str) -> None:
    assert silenced(f"a = 1  {comment}\n") == []


def test_only_the_named_codes_are_silenced() -> None:
    source = "a = 1  # attn-guard: ignore[ATN101, ATN203]\n"
    assert silenced(source, "ATN101") == [1]
    assert silenced(source, "ATN203") == [1]
    assert silenced(source, "ATN102") == []


def test_file_ignore_silences_every_line_wherever_it_stands() -> None:
    source = "a = 1\nb = 2\n# attn-guard: file-ignore[ATN201] a study of this very mistake\n"
    assert silenced(source) == [1, 2, 3, 4]
    assert silenced(source, "ATN202") == []


def test_a_comment_alone_on_its_line_holds_for_the_next_line_of_code() -> None:
    source = "# attn-guard: ignore[ATN201] on purpose\n\n# more words\nb = 2\nc = 3\n"
    assert silenced(source) == [1, 2, 3, 4]


def test_a_comment_alone_inside_brackets_holds_for_the_next_line_only() -> None:
    source = "a = f(\n    # attn-guard: ignore[ATN201]\n    one,\n    two,\n)\n"
    assert silenced(source) == [2, 3]


def test_a_comment_that_closes_a_long_statement_holds_for_all_of_it() -> None:
    source = "x = 0\na = f(\n    one,\n    two,\n)  # noqa: ATN201\nb = 2\n"
    assert silenced(source) == [2, 3, 4, 5]


def test_a_comment_in_the_middle_of_a_long_statement_holds_for_its_own_line() -> None:
    assert silenced("a = f(\n    one,  # noqa: ATN201\n    two,\n)\n") == [2]


def test_a_comment_on_the_header_of_a_block_does_not_cover_the_block() -> None:
    assert silenced("def f(\n    x,\n):  # noqa: ATN201\n    return x\n") == [1, 2, 3]


def test_text_inside_strings_is_not_a_comment() -> None:
    source = 'a = "# noqa: ATN201"\nb = """\n# attn-guard: file-ignore[ATN201]\n"""\n'
    assert silenced(source) == []


def test_a_file_that_breaks_off_keeps_the_comments_before_the_break() -> None:
    source = "# attn-guard: file-ignore[ATN900]\na = 1  # noqa: ATN201\ndef f(:\n    '''never closed\n"
    assert Suppressions.of(source).silences("ATN900", 3)
    assert silenced(source) == [2]


def test_a_last_line_without_a_newline_counts() -> None:
    assert silenced("a = 1  # noqa: ATN201") == [1]
    assert silenced("a = 1\n# noqa: ATN201") == [2]


def test_source_without_any_such_comment_is_not_read_at_all() -> None:
    assert Suppressions.of("a = (1,\n") == Suppressions()
