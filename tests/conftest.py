"""Runs of pytest inside the tests need ``pytester``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def _examples_are_imported_anew() -> Iterator[None]:
    """A module that a test imports from a file of the examples goes with the test.

    pytest would warn, in a run inside a later test, that it cannot rewrite the assertions of a module that is there
    already.
    """
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(EXAMPLES)):
            del sys.modules[name]
