"""The pytest plugin. It imports pytest and the standard library only; the work is loaded with ``--attn-guard``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attn-guard")
    group.addoption(
        "--attn-guard",
        action="store_true",
        help="lint the sources and probe every attention module that the tests run",
    )
    parser.addini("attn_guard", type="bool", default=False, help="the same as --attn-guard, always")
