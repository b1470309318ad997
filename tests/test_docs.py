"""What is written for people is what the package does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attn_guard.gotchas.page import pages, table

ROOT = Path(__file__).parent.parent


def test_the_readme_lists_the_gotchas_there_are() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = readme.partition("<!-- gotchas -->\n")[2].partition("<!-- /gotchas -->")[0]
    assert listed == table("docs/gotchas/{page}")


def test_the_gotcha_pages_are_current() -> None:
    folder = ROOT / "docs" / "gotchas"
    written = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert written == pages(), "run: python -m attn_guard.gotchas.page docs/gotchas"


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_the_readme_names_the_ci_test_command_once() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^python3 -m venv .*pytest -n auto$", readme, re.MULTILINE)) == 1
