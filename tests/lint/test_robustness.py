"""Whatever a file holds, lint answers with a report, and needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_guard import lint
from attn_guard.findings import Severity
from attn_guard.lint.judge import sites_of
from attn_guard.lint.run import lint_source
from tests.lint.sources import LINES_BEFORE, attention, forward

BROKEN = attention("q @ k.mT")


def test_file_that_does_not_parse_is_a_finding_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n    return softmax(q @ k)\n", encoding="utf-8")
    (tmp_path / "good.py").write_text(BROKEN, encoding="utf-8")
    report = lint(tmp_path)
    assert [finding.code for finding in report] == ["ATN900", "ATN101"]
    error = report.findings[0]
    assert (error.name, error.severity, error.location.line) == ("syntax-error", Severity.ERROR, 1)
    assert report.files == 2


def test_named_file_is_checked_for_syntax_even_without_attention(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ny = = 2\n", encoding="utf-8")
    (finding,) = lint(tmp_path / "bad.py")
    assert (finding.code, finding.location.line) == ("ATN900", 2)


def test_syntax_error_can_be_ignored(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n", encoding="utf-8")
    assert lint(tmp_path / "bad.py", ignore=["ATN900"]).findings == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"\x00\x00softmax(",
        b"\xff\xfe\x00softmax(x)",
        b"softmax(" * 3000,
        b"x = " + b"(" * 3000 + b"softmax(1)" + b")" * 3000,
        b"def f(q, k, v):\n    return " + b"-" * 5000 + b"softmax(q @ k)",
        b"x = " + b"+".join([b"softmax(1)"] * 4000),
        b"'''softmax(",
        b"class A:\n\tdef f(self):\n\t\treturn softmax(self)\n  def g(self): pass\n",
        b"def f(self):\n    return softmax(x)\n\\",
        b"@",
        b"match softmax(1):\n    case _: pass\n",
        b"def f[T](q: T) -> T:\n    return softmax(q)\n",
        b"print 'softmax(x)'",
    ],
)
def test_strange_content_never_raises(content: bytes, tmp_path: Path) -> None:
    lint_source(content, "strange.py", preview=True)
    (tmp_path / "strange.py").write_bytes(content)
    lint(tmp_path, preview=True)


@given(st.integers(0, len(BROKEN)), st.integers(0, len(BROKEN)), st.text(max_size=8))
@settings(max_examples=25, deadline=None)
def test_any_damage_to_a_module_never_raises(first: int, second: int, inserted: str) -> None:
    first, second = sorted((first, min(second, first + 40)))
    damaged = BROKEN[:first] + inserted + BROKEN[second:]
    lint_source(damaged.encode("utf-8", "replace"), "damaged.py", preview=True)


@pytest.mark.parametrize(
    "content",
    [
        BROKEN.encode("utf-8-sig"),
        BROKEN.replace("\n", "\r\n").encode(),
        ("# -*- coding: latin-1 -*-\n" + BROKEN.replace("# ", "# é ")).encode("latin-1"),
        (BROKEN + "# \udcff".encode("utf-8", "surrogateescape").decode("latin-1")).encode("latin-1"),
        BROKEN.replace("    ", "\t").encode(),
    ],
)
def test_findings_do_not_depend_on_encoding_line_ends_or_tabs(content: bytes) -> None:
    shift = content.startswith(b"# -*-")
    (finding,) = lint_source(content, "attention.py")
    assert (finding.code, finding.location.line) == ("ATN101", LINES_BEFORE + 1 + shift)


def test_finding_has_its_exact_span() -> None:
    (finding,) = lint_source(BROKEN, "attention.py")
    place = finding.location
    line = BROKEN.splitlines()[place.line - 1]
    assert line[place.column - 1 : place.end_column - 1] == "q @ k.mT"


def test_comment_on_the_line_suppresses_and_is_counted() -> None:
    source = BROKEN.replace(
        "scores = q @ k.mT", "scores = q @ k.mT  # attn-guard: ignore[ATN101] folded into the weights"
    )
    report = lint_source(source, "attention.py")
    assert report.findings == ()
    assert [finding.code for finding in report.suppressed] == ["ATN101"]


@pytest.mark.parametrize("silence", ["# attn-guard: file-ignore[ATN101]\n", ""], ids=["file", "noqa"])
def test_other_suppressions(silence: str) -> None:
    source = silence + (BROKEN if silence else BROKEN.replace("q @ k.mT", "q @ k.mT  # noqa: ATN101"))
    assert lint_source(source, "attention.py").findings == ()


def test_allow_on_the_class_suppresses() -> None:
    source = BROKEN.replace("class Attention", '@attn_guard.allow("ATN101", "meant")\nclass Attention')
    assert lint_source(source, "attention.py").findings == ()
    other = BROKEN.replace("class Attention", '@attn_guard.allow("ATN102", "meant")\nclass Attention')
    assert len(lint_source(other, "attention.py").findings) == 1


def test_select_and_ignore_choose_the_gotchas() -> None:
    assert len(lint_source(BROKEN, "a.py", select=["ATN1"])) == 1
    assert len(lint_source(BROKEN, "a.py", select=["ATN2"])) == 0
    assert len(lint_source(BROKEN, "a.py", ignore=["ATN101"])) == 0


def test_recursion_in_the_read_code_ends() -> None:
    body = "def again(s):\n    return again(s) if t else s\nreturn again(q @ k.mT).softmax(-1) @ v"
    assert sites_of(forward(body))


def test_report_counts_files_and_parsed_regions() -> None:
    report = lint_source(BROKEN, "attention.py")
    assert (report.files, report.regions) == (1, 3)
    assert [site.name for site in report.sites] == ["Attention.forward"]


def test_lint_never_imports_torch(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(BROKEN, encoding="utf-8")
    code = (
        "import sys, attn_guard\n"
        f"report = attn_guard.lint({str(tmp_path)!r}, preview=True)\n"
        "assert report.codes['ATN101'] == 1\n"
        "assert not {'torch', 'numpy', 'transformers', 'libcst.matchers'} & set(sys.modules), 'heavy import'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_a_file_of_fifty_thousand_lines_is_read_in_bounded_time() -> None:
    import time

    plain = "def f{0}(x):\n    y = [x, {0}]\n    return y\n\n\n"
    content = ("".join(plain.format(number) for number in range(10_000)) + BROKEN).encode()
    start = time.process_time()
    report = lint_source(content, "long.py", preview=True)
    assert time.process_time() - start < 20  # seconds of the processor, ten times what it takes
    assert [finding.code for finding in report] == ["ATN101"]


@pytest.mark.slow
def test_memory_grows_with_the_file_and_no_faster() -> None:
    import tracemalloc

    peaks = []
    for copies in (5, 20):
        content = "\n\n".join(BROKEN.replace("class Attention", f"class A{number}") for number in range(copies))
        tracemalloc.start()
        lint_source(content, "long.py", preview=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 5 * peaks[0]


SYNTAX = [
    "print 'softmax'\n",  # Python 2
    "exec 'softmax' in {}\n",
    "try:\n    pass\nexcept Error, error:\n    pass\n",
    "x = 0777 <> `softmax`\n",
    "raise Error, 'softmax'\n",
    "type Scores = list[float]\n",  # 3.12
    "def f[*Ts, **P](*args: *Ts) -> None: ...\n",
    "x = f'{softmax!r:{'>'}10}'\n",
    "class A[T = int]: ...\n",  # 3.13
    "x = t'{softmax}'\n",  # 3.14
    "try:\n    pass\nexcept A, B:\n    pass\n",
    "lazy import json\n",  # 3.15
    "x = [*row for row in rows]\n",
    "x = {**row for row in rows}\n",
]


@pytest.mark.parametrize("statement", SYNTAX)
def test_syntax_of_any_age_gives_findings_or_says_that_it_cannot_be_read(statement: str) -> None:
    report = lint_source(statement + BROKEN, "old_or_new.py", preview=True)
    codes = [finding.code for finding in report]
    assert codes in (["ATN101"], ["ATN900"])
    if codes == ["ATN900"]:
        assert report.findings[0].location.line <= statement.count("\n") + 1


@pytest.mark.parametrize("opening", ["(", "[", "{", "f(", "not ", "-", "lambda: ", "x if y else ", "x.y(", "x ** "])
@pytest.mark.parametrize("depth", [50, 1000, 20_000])
def test_deep_nesting_never_raises(opening: str, depth: int) -> None:
    nested = f"x = {opening * depth}softmax(1){')' * depth if '(' in opening else ''}\n"
    report = lint_source(BROKEN + nested, "deep.py", preview=True)
    assert {finding.code for finding in report} <= {"ATN101", "ATN900"}


def test_deeply_indented_blocks_never_raise() -> None:
    nested = "".join(f"{' ' * depth}if x:\n" for depth in range(150)) + " " * 150 + "softmax(x)\n"
    report = lint_source(BROKEN + nested, "deep.py", preview=True)
    assert {finding.code for finding in report} <= {"ATN101", "ATN900"}


@pytest.mark.parametrize("end", ["\r", "\x0c\n", "\n\x00", "\x85", "\u2028", "\x1c"])
def test_strange_line_ends_never_raise(end: str) -> None:
    report = lint_source(BROKEN.replace("\n", end).encode(), "ends.py", preview=True)
    assert {finding.code for finding in report} <= {"ATN101", "ATN900"}
