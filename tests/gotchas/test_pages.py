"""Every gotcha has a page to be read: its order, its style, and its twins shown as they are."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

import pytest

from attn_guard.findings import Detector
from attn_guard.gotchas.page import page
from attn_guard.gotchas.registry import SECTIONS, Entry, entries

ENTRIES = pytest.mark.parametrize("entry", entries().values(), ids=entries())


@ENTRIES
def test_the_page_opens_with_one_sentence(entry: Entry) -> None:
    first, blank, *_ = entry.page.splitlines()
    assert re.fullmatch(r"\S.*\.", first)
    assert len(first) <= 100
    assert blank == ""


@ENTRIES
def test_sections_stand_in_order_and_have_text(entry: Entry) -> None:
    parts = re.split(r"^(\S.*)\n(-+)$", entry.page, flags=re.MULTILINE)[1:]
    titles, underlines, texts = parts[::3], parts[1::3], [text.strip() for text in parts[2::3]]
    assert tuple(titles) == SECTIONS
    assert [len(line) for line in underlines] == [len(title) for title in titles]
    assert len(texts[0]) > 80
    assert len(texts[1]) > 200
    assert texts[2:] == ["{broken}", "{fixed}"]


@pytest.mark.parametrize("entry", [entry for entry in entries().values() if entry.gotcha.preview])
def test_what_is_in_preview_says_why(entry: Entry) -> None:
    """The reason follows a colon. Where the linter is meant, the page speaks of it, of source, or of both readers."""
    (why,) = re.findall(r"\bin preview:\s+(\w.+?)\n\n", entry.page, flags=re.DOTALL)
    assert len(why) > 40
    if Detector.LINT in entry.gotcha.preview:
        (paragraph,) = (text for text in entry.page.split("\n\n") if "in preview:" in text)
        assert re.search(r"linter|source|reader|attribute|counted", paragraph)


@ENTRIES
def test_summary_and_fix_are_calm_lines(entry: Entry) -> None:
    for line in (entry.gotcha.summary, entry.gotcha.fix):
        assert line[0].islower()
        assert line[-1] not in ".!"
        assert "\n" not in line
        assert 15 < len(line) <= 100


@ENTRIES
def test_the_summary_says_what_is_wrong_and_not_what_to_do(entry: Entry) -> None:
    assert entry.gotcha.fix not in entry.gotcha.summary
    assert not re.search(r"\b(use|pass|add|fill the|instead|should use|must)\b", entry.gotcha.summary)


@ENTRIES
def test_the_rendered_page_shows_both_twins_as_they_are(entry: Entry) -> None:
    blocks = re.findall(r"^```python\n(.*?)\n```$", page(entry), flags=re.MULTILINE | re.DOTALL)
    assert [f"{block}\n" for block in blocks] == [entry.broken.read_text(), entry.fixed.read_text()]
    assert f"# <- {entry.gotcha.code}" in blocks[0]
    for block in blocks:
        ast.parse(block)


@ENTRIES
def test_the_rendered_page_is_markdown_with_the_facts_on_top(entry: Entry) -> None:
    title, _, facts, *_ = page(entry).splitlines()
    assert title == f"# {entry.gotcha.name} ({entry.gotcha.code})"
    assert facts.startswith(f"Severity: {entry.gotcha.severity}. Found by ")
    assert facts.endswith(f"Fix: {entry.gotcha.fix}.")
    prose = re.sub(r"^```python\n.*?^```$", "", page(entry), flags=re.MULTILINE | re.DOTALL)
    assert re.findall(r"^## (.*)$", prose, flags=re.MULTILINE) == list(SECTIONS)
    assert not re.search(r"^---", prose, flags=re.MULTILINE)
    assert "{broken}" not in prose
    assert "{fixed}" not in prose


def test_the_page_says_which_reader_is_in_preview() -> None:
    entry = entries()["ATN201"]
    assert "Found by lint and probe. " in page(entry)
    preview = replace(entry.gotcha, preview=(Detector.LINT,))
    assert "Found by lint (preview) and probe. " in page(replace(entry, gotcha=preview))
