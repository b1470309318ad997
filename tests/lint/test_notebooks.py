"""Notebooks are read cell by cell as one text, and mended without a change to anything else in them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from attn_guard import lint
from attn_guard.cli import main
from attn_guard.gotchas.registry import examples
from attn_guard.lint.run import lint_source
from attn_guard.notebook import Notebook, NotebookError
from attn_guard.report import render
from tests.lint.sources import HEAD, attention

FORWARD = attention("q @ k.mT").removeprefix(HEAD)
VIEW = (examples() / "broken" / "atn302_view_after_transpose.py").read_text()


def cell(source: str, kind: str = "code") -> dict[str, Any]:
    about = {"outputs": [{"text": ["source: softmax(x)\n"]}], "execution_count": None} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True), **about}


def notebook(*cells: str | dict[str, Any], language: str = "python", **form: Any) -> bytes:
    made = [one if isinstance(one, dict) else cell(one) for one in cells]
    document = {"cells": made, "metadata": {"language_info": {"name": language}}, "nbformat": 4, "nbformat_minor": 5}
    return (json.dumps(document, **{"indent": 1, "ensure_ascii": False, **form}) + "\n").encode()


def found_in(content: bytes) -> list[tuple[str, int, int]]:
    return [(f.code, f.location.cell, f.location.line) for f in lint_source(content, "a.ipynb", preview=True)]


def test_a_finding_says_cell_line_and_column() -> None:
    content = notebook(cell("# softmax", "markdown"), "import torch\n", attention("q @ k.mT"))
    (found,) = lint_source(content, "a.ipynb")
    line = HEAD.count("\n") + 1
    assert (found.code, found.location.cell, found.location.line) == ("ATN101", 3, line)
    assert str(found.location) == f"a.ipynb:cell 3:{line}:18"
    (related, _), *_ = found.related
    assert related.cell == 3


def test_what_an_earlier_cell_defines_is_known_in_a_later_one() -> None:
    helper = "def attend(q, k, v):\n    return (q @ k.mT).softmax(-1) @ v"
    layer = (
        "class Attention(nn.Module):\n"
        "    def __init__(self, d):\n        super().__init__()\n"
        "        self.q, self.k, self.v = (nn.Linear(d, d) for _ in 'qkv')\n"
        "    def forward(self, x):\n        return attend(self.q(x), self.k(x), self.v(x))"
    )
    assert found_in(notebook("import torch\nfrom torch import nn", helper, layer)) == [("ATN101", 2, 2)]
    assert found_in(notebook("import torch\nfrom torch import nn", helper)) == []


MAGICS = [
    "%matplotlib inline\n",
    "!pip install torch \\\n    einops 'softmax('\n",
    "files = !ls\n",
    "size = %env SIZE\n",
    "%timeit -n 1 f(x)\n",
    "torch.softmax?\n",
    "?torch.softmax\n",
    "nn.Linear??\n",
    "if True:\n    !ls {x}\n",
]


@pytest.mark.parametrize("magic", MAGICS)
def test_magics_are_no_mistakes_and_keep_the_line_numbers(magic: str) -> None:
    line = HEAD.count("\n") + 1 + magic.count("\n")
    assert found_in(notebook(magic + attention("q @ k.mT"))) == [("ATN101", 1, line)]


@pytest.mark.parametrize("first", ["%%time\n", "%%capture out\n"])
def test_cells_that_are_timed_are_read(first: str) -> None:
    assert found_in(notebook(first + attention("q @ k.mT"))) == [("ATN101", 1, HEAD.count("\n") + 2)]


@pytest.mark.parametrize("first", ["%%bash\n", "%%javascript\n", "%%writefile model.py\n"])
def test_cells_in_other_languages_are_passed_over(first: str) -> None:
    assert found_in(notebook(first + "softmax(\n", attention("q @ k.mT"))) == [("ATN101", 2, HEAD.count("\n") + 1)]


def test_what_looks_like_a_magic_inside_a_statement_is_python() -> None:
    source = 'text = """\n%d softmax\n!\n"""\nrest = (7\n% 4)\nsame = 7 \\\n% 4\n!ls\n'
    book = Notebook(notebook(source))
    assert book.text == source.replace("!ls", "pass") + "\n"
    assert book.cells[0].error is None


def test_a_cell_that_does_not_parse_is_a_finding_and_the_others_are_read(tmp_path: Path) -> None:
    content = notebook("x = 1\ny = = 2\n", attention("q @ k.mT"))
    (tmp_path / "a.ipynb").write_bytes(content)
    assert found_in(content) == [("ATN900", 1, 2), ("ATN101", 2, HEAD.count("\n") + 1)]
    assert [f.code for f in lint(tmp_path)] == ["ATN101"]  # as with files: only what is named is checked for syntax
    assert [f.code for f in lint(tmp_path / "a.ipynb")] == ["ATN900", "ATN101"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1, softmax(x)]", b'"softmax(x)"', b"\xff\xfe softmax(x)", b"[" * 100_000 + b"softmax(x)"],
)
def test_what_is_no_notebook_is_a_finding(content: bytes) -> None:
    (found,) = lint_source(content, "a.ipynb")
    assert (found.code, found.location.cell) == ("ATN900", 0)
    with pytest.raises(NotebookError):
        Notebook(content)


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b'{"cells": 1}',
        b'{"cells": [1, null, {"cell_type": "code"}, {"source": ["softmax(x)"]}]}',
        b'{"cells": [{"cell_type": 1, "source": "softmax(x)"}]}',
        b'{"cells": [{"cell_type": "code", "source": "\\u0000 softmax(x)"}]}',
        b'{"cells": [{"cell_type": "code", "source": "\\ud800 softmax(x)"}]}',
        b'{"metadata": {"kernelspec": 3, "language_info": []}, "cells": [{"cell_type": "code", "source": []}]}',
    ],
)
def test_strange_notebooks_never_raise(content: bytes) -> None:
    lint_source(content, "a.ipynb", preview=True)


def test_notebooks_in_other_languages_are_passed_over() -> None:
    assert found_in(notebook(attention("q @ k.mT"), language="julia")) == []


def test_the_old_format_is_read() -> None:
    sheet = {"cells": [{"cell_type": "code", "input": attention("q @ k.mT").splitlines(keepends=True)}]}
    content = json.dumps({"nbformat": 3, "worksheets": [sheet]}).encode()
    assert found_in(content) == [("ATN101", 1, HEAD.count("\n") + 1)]


def test_comments_silence_in_their_cell() -> None:
    silent = attention("q @ k.mT").replace("q @ k.mT", "q @ k.mT  # attn-guard: ignore[ATN101] meant")
    report = lint_source(notebook("x = 1", silent), "a.ipynb")
    assert report.findings == ()
    assert [f.location.cell for f in report.suppressed] == [2]


def test_notebooks_are_found_in_folders_and_checkpoints_are_not(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_bytes(notebook(attention("q @ k.mT")))
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "a-checkpoint.ipynb").write_bytes(notebook(attention("q @ k.mT")))
    report = lint(tmp_path)
    assert report.files == 1
    assert len(report) == 1


FORMS: list[dict[str, Any]] = [
    {},
    {"indent": 4},
    {"indent": None},
    {"indent": "\t"},
    {"ensure_ascii": True},
    {"separators": (",", ":")},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("end", ["\n", "", "\r\n"])
def test_a_fix_changes_nothing_but_its_line(form: dict[str, Any], end: str, tmp_path: Path) -> None:
    source = "%pip install torch\n" + VIEW.replace("class Attention", "# é ✗ \t\nclass Attention")
    content = notebook("é = 1", cell("text é", "markdown"), source, **form).rstrip(b"\n") + end.encode()
    path = tmp_path / "a.ipynb"
    path.write_bytes(content)
    assert main(["lint", "--fix", str(path)]) == 0
    assert path.read_bytes() == content.replace(b"context.view(", b"context.reshape(")


def test_a_cell_in_one_string_is_mended_too(tmp_path: Path) -> None:
    content = json.dumps({"cells": [{"cell_type": "code", "source": VIEW}]}).encode()
    path = tmp_path / "a.ipynb"
    path.write_bytes(content)
    assert main(["lint", "--fix", str(path)]) == 0
    assert path.read_bytes() == content.replace(b"context.view(", b"context.reshape(")


def test_a_difference_is_shown_by_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.ipynb").write_bytes(notebook("x = 1", VIEW))
    assert main(["lint", "--diff"]) == 1
    assert capsys.readouterr().out.startswith("--- a.ipynb:cell 2\n+++ a.ipynb:cell 2\n@@ ")


def test_standard_input_may_be_a_notebook(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    content = notebook(VIEW)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert main(["lint", "--fix", "--stdin-filename", "a.ipynb", "-"]) == 0
    assert capsys.readouterr().out.encode() == content.replace(b"context.view(", b"context.reshape(")


def test_comments_that_silence_are_written_into_the_cell(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_bytes(notebook("x = 1", attention("q @ k.mT")))
    assert main(["lint", "--add-ignore", "meant", str(path)]) == 0
    assert b"scores = q @ k.mT  # attn-guard: ignore[ATN101] meant\\n" in path.read_bytes()
    assert main(["lint", str(path)]) == 0


class TestReports:
    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        path = Path("a.ipynb")
        path.write_bytes(notebook("x = 1", attention("q @ k.mT")))
        return path

    def line_in_file(self, path: Path) -> int:
        lines = path.read_text(encoding="utf-8").splitlines()
        return next(number for number, line in enumerate(lines, 1) if "q @ k.mT" in line)

    def test_people_see_the_source_of_the_cell(self, path: Path) -> None:
        shown = render(lint(path), "full")
        assert f"--> a.ipynb:cell 2:{HEAD.count(chr(10)) + 1}:18" in shown
        assert "|         scores = q @ k.mT\n" in shown

    def test_programs_get_the_line_of_the_file(self, path: Path) -> None:
        line = self.line_in_file(path)
        assert f"line={line}::" in render(lint(path), "github")
        (issue,) = json.loads(render(lint(path), "gitlab"))
        assert issue["location"]["positions"]["begin"] == {"line": line, "column": 1}
        (result,) = json.loads(render(lint(path), "sarif"))["runs"][0]["results"]
        assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": line}
        assert "cell 2" in result["message"]["text"]
        assert "fixes" not in result
        assert f'line="{line}"' in render(lint(path), "junit")

    def test_json_says_the_cell(self, path: Path) -> None:
        (found,) = json.loads(render(lint(path), "json"))["findings"]
        assert found["location"]["cell"] == 2

    def test_an_accepted_finding_stays_accepted_when_cells_move(self, path: Path) -> None:
        assert main(["lint", "--write-baseline"]) == 0
        path.write_bytes(notebook("x = 1", "y = 2", attention("q @ k.mT")))
        assert main(["lint", "--baseline", "attn-guard-baseline.json"]) == 0
