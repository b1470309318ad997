"""Probes the attention modules that the user's tests run, with the inputs that the tests gave them."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from attn_guard.errors import UsageError
from attn_guard.pytest_session.payload import Payload, attach, payload
from attn_guard.pytest_session.promises import promises

if TYPE_CHECKING:
    from attn_guard.config import Config
    from attn_guard.probe.observe import Observation, Observer

FAILED = pytest.StashKey[bool]()
PROBED = pytest.StashKey[list[Payload]]()


class Modules:
    """Observes calls while a test runs, and probes what is new before its fixtures go."""

    def __init__(self, settings: Config) -> None:
        self.settings = settings
        self.observer: Observer | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            try:
                promises(item)
            except UsageError as error:
                raise pytest.UsageError(str(error)) from None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._observe(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self._observe(item)  # a fixture may have been the first to import torch

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        if self.observer is None:
            return
        self.observer.remove()
        probed = [self._probe(seen, item) for seen in self.observer.take() if self._wanted(seen, item)]
        notes = [payload("note", "", note=note) for note in self.observer.take_notes()]
        item.stash[PROBED] = probed + notes

    def pytest_unconfigure(self) -> None:
        if self.observer is not None:
            self.observer.remove()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "call":
            item.stash[FAILED] = report.failed
        elif call.when == "teardown":
            attach(report, item.stash.get(PROBED, []))
        return report

    def _wanted(self, seen: Observation, item: pytest.Item) -> bool:
        """A call that raised is of interest where the test fails with it, not where the test expects it."""
        return not seen.raised or item.stash.get(FAILED, False)

    def _observe(self, item: pytest.Item) -> None:
        """Begins to observe once the tests themselves have imported torch."""
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "nn"):
            return
        if self.observer is None:
            from attn_guard.probe.observe import Observer

            self.observer = Observer()
        said = promises(item)
        self.observer.install(repr(sorted(said.items())) if said else "")

    def _probe(self, seen: Observation, item: pytest.Item) -> Payload:
        from attn_guard.probe.check import check

        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                report = check(seen.module, seen.args, seen.kwargs, **self._options(item))
        except Exception as error:
            if seen.raised:
                return payload("probe", seen.name)
            return payload("probe", seen.name, note=f"{seen.name}: probe failed: {type(error).__name__}: {error}")
        return payload("probe", seen.name, self.settings.apply(report), seconds=time.perf_counter() - start)

    def _options(self, item: pytest.Item) -> dict[str, Any]:
        said = promises(item)
        said["select"] = said.get("select") or self.settings.select
        said["ignore"] = (*self.settings.ignore, *said.get("ignore", ()))
        return {"preview": self.settings.preview, **said}
