"""Small projects to run pytest in.

What an inner run imports is forgotten afterwards by pytester. Some of it must not be: torch cannot be imported twice,
and a second copy of attn_guard has findings of its own. So everything is imported here, before any inner run.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch._dynamo  # noqa: F401

import attn_guard
from attn_guard.gotchas.registry import examples

TEST = """\
import torch
from model import build


def test_forward_keeps_the_shape():
    x = torch.randn(2, 5, 22)
    assert build()(x).shape == x.shape
"""

Project = Callable[..., Path]

for module in pkgutil.walk_packages(attn_guard.__path__, "attn_guard."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    """Writes ``model.py``, a broken or fixed twin, and a test that runs it."""

    def write(kind: str = "broken", name: str = "atn101_missing_scale", test: str = TEST) -> Path:
        source = (examples() / kind / f"{name}.py").read_text()
        pytester.makepyfile(model=source, test_model=test)
        return pytester.path

    return write
