"""The same code written differently has the same findings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_guard.findings import Detector
from attn_guard.gotchas.registry import entries
from attn_guard.lint.run import lint_source
from tests.lint.rewritings import ALL, Rewriting

TWINS = [
    pytest.param(path, id=f"{path.parent.name}-{path.stem[:6]}", marks=marks)
    for entry in entries().values()
    if Detector.LINT in entry.detectors
    for path, marks in ((entry.broken, ()), (entry.fixed, pytest.mark.slow))
]


def found(source: str) -> Counter[tuple[str, str]]:
    return Counter((finding.code, finding.severity) for finding in lint_source(source, "twin.py", preview=True))


@pytest.mark.parametrize("path", TWINS)
def test_every_rewriting_keeps_the_findings(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    expected = found(source)
    kept = {rewriting.__name__: found(rewriting(source)) for rewriting in ALL}
    assert kept == dict.fromkeys(kept, expected)


@given(st.data())
@settings(max_examples=15, deadline=None)
def test_rewritings_one_after_the_other_keep_the_findings(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from([param.values[0] for param in TWINS]))
    steps: list[Rewriting] = data.draw(st.lists(st.sampled_from(ALL), min_size=2, max_size=4))
    source = Path(str(path)).read_text(encoding="utf-8")
    expected = found(source)
    for rewriting in steps:
        source = rewriting(source)
    assert found(source) == expected
