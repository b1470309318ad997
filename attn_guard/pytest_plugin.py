"""The pytest plugin. It imports pytest and the standard library only; the work is loaded with ``--attn-guard``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from attn_guard.pytest_session.fixture import AttnGuard

MARKER = (
    "attn_guard(causal, cross, masks, scale, ..., select, ignore, reason): what the attention modules that a test runs "
    "promise; also on every lint item of attn-guard"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attn-guard")
    group.addoption(
        "--attn-guard",
        action="store_true",
        help="lint the sources and probe every attention module that the tests run",
    )
    parser.addini("attn_guard", type="bool", default=False, help="the same as --attn-guard, always")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    if config.getoption("attn_guard") or config.getini("attn_guard"):
        from attn_guard.pytest_session import start

        start(config)


@pytest.fixture
def attn_guard() -> AttnGuard:
    """``attn_guard.check(module, args, kwargs, **promises)`` fails the test with the report of what it finds."""
    from attn_guard.pytest_session.fixture import AttnGuard

    return AttnGuard()
