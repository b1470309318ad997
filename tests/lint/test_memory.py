"""What is read of a file is free as soon as the file is judged, without a search for cycles."""

from __future__ import annotations

import gc
import weakref

import pytest

from attn_guard.lint import judge
from attn_guard.lint.plan import Plan
from attn_guard.lint.regions import Source, cut
from attn_guard.lint.run import lint_source
from attn_guard.suppressions import Suppressions
from tests.lint.sources import attention
from tests.lint.test_visits import modules


@pytest.mark.parametrize(
    "source",
    [
        attention(then="scores = scores.masked_fill(mask == 0, 1e-9)"),  # has a fix
        modules(),  # objects that a walk makes and comes through
        modules() + modules(given="x"),  # classes that are written anew
    ],
    ids=["fix", "objects", "anew"],
)
def test_nothing_that_was_read_of_a_file_is_left(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    seen: list[weakref.ref[object]] = []

    def noted(path: str, text: str) -> Source:
        made = cut(path, text)
        regions = list(made.regions)
        seen.extend(weakref.ref(part) for part in (made, *made.all_classes, *regions))
        return made

    monkeypatch.setattr(judge, "cut", noted)
    gc.disable()
    try:
        assert lint_source(source, "model.py").findings
        assert [part() for part in seen if part() is not None] == []
    finally:
        gc.enable()


def test_nothing_is_left_of_a_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[weakref.ref[object]] = []

    def noted(path: str, text: str) -> Source:
        made = cut(path, text)
        seen.extend(weakref.ref(part) for part in made.all_classes)
        return made

    monkeypatch.setattr(judge, "cut", noted)
    gc.disable()
    try:
        text = modules().replace("b, t, d = x.shape", "b, t, d = = x.shape")
        assert judge.judge("model.py", text, Suppressions.of(text), Plan.of((), (), preview=False)) is None
        assert seen
        assert [part() for part in seen if part() is not None] == []
    finally:
        gc.enable()
