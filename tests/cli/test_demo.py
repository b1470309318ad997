"""``attn-guard demo``"""

from __future__ import annotations

import importlib.util

import pytest

from attn_guard.cli import main
from attn_guard.demo import CODES


def test_it_lints_probes_draws_a_leak_and_says_what_to_try_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    shown = capsys.readouterr().out
    linted, probed = shown.split("attn-guard check broken")
    assert all(code in probed for code in CODES)
    assert "error[ATN201] mask-after-softmax" in linted
    assert "input position" in probed
    assert "pytest --attn-guard" in probed.splitlines()[-2]


def test_without_torch_it_still_lints(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else find(name, *rest))
    assert main(["demo"]) == 0
    shown = capsys.readouterr().out
    assert "error[ATN201] mask-after-softmax" in shown
    assert "pip install 'attn-guard[torch]'" in shown
