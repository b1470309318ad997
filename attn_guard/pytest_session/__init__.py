"""What ``pytest --attn-guard`` does: lints sources as items, probes the modules that tests run, sums both up.

What is found travels on pytest's own reports, so that it reaches the main process under pytest-xdist as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from attn_guard.config import Nearest
from attn_guard.errors import UsageError

if TYPE_CHECKING:
    from attn_guard.config import Config


def start(config: pytest.Config) -> None:
    """Registers the plugins that do the work. Raises `pytest.UsageError` for a bad configuration."""
    from attn_guard.pytest_session import modules, sources, summary

    nearest = Nearest(_checked, config.rootpath)
    try:
        settings = nearest.inside(config.rootpath.resolve())
    except UsageError as error:
        raise pytest.UsageError(f"attn-guard: {error}") from None
    config.pluginmanager.register(sources.Sources(settings, nearest), "attn-guard-sources")
    config.pluginmanager.register(modules.Modules(settings), "attn-guard-modules")
    if not hasattr(config, "workerinput"):  # xdist's workers leave it to the main process
        config.pluginmanager.register(summary.Summary(config), "attn-guard-summary")
        summary.accept_reported_ids(config)


def _checked(settings: Config) -> Config:
    """The same configuration. Raises `UsageError` for codes that do not exist."""
    from attn_guard.findings import Detector
    from attn_guard.gotchas.registry import select

    select(settings.select, settings.ignore, preview=settings.preview, detector=Detector.LINT)
    return settings
