"""``attn-guard explain`` and ``attn-guard rules``."""

from __future__ import annotations

import pytest

from attn_guard.cli import main
from attn_guard.gotchas.registry import TOOL_CODES, entries


@pytest.mark.parametrize("code", ["ATN201", "atn201", "mask-after-softmax"])
def test_a_gotcha_is_explained_by_code_or_name(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", code]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# mask-after-softmax (ATN201)")
    assert "## Why is this bad" in shown
    assert "```python" in shown


@pytest.mark.parametrize("code", TOOL_CODES)
def test_the_tools_own_codes_are_explained(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", code]) == 0
    assert f"({code})" in capsys.readouterr().out.splitlines()[0]


def test_an_unknown_code_exits_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "ATN999"]) == 2
    assert "unknown code 'ATN999'" in capsys.readouterr().err


def test_rules_lists_every_code_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*entries(), *TOOL_CODES]
    first = next(iter(entries().values())).gotcha
    assert lines[0].split()[1:3] == [first.name, first.severity]
    assert lines[0].endswith(first.summary)
