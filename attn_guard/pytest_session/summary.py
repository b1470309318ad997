"""Fails the run for what probes found, and sums up at its end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from attn_guard.pytest_session.failure import FindingsRepr
from attn_guard.pytest_session.payload import Payload, Told, attached
from attn_guard.report.style import counted

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

SHOWN = 4  # sites of one class that are listed
_SUFFIX = re.compile(r"::attn-guard\[[^\[\]]*\]$")


def accept_reported_ids(config: pytest.Config) -> None:
    """Lets the id of a probe failure, as pytest prints it, name the test that ran the module."""
    config.args = [_SUFFIX.sub("", arg) for arg in config.args]


class Summary:
    """Lives in the main process only, and sees every report."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.linted = 0
        self.codes: Counter[str] = Counter()
        self.modules: dict[str, Module] = {}
        self.notes: dict[str, None] = {}
        self.seconds = 0.0
        self.session: pytest.Session | None = None
        self._reported: set[str] = set()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for found in attached(report):
            self.seconds += found["seconds"] if found["kind"] == "probe" else 0.0
            if found["note"]:
                self.notes[found["note"]] = None
            if found["kind"] == "lint":
                self.linted += 1
                self.codes.update(finding["code"] for finding in found["findings"])
            elif found["kind"] == "probe":
                self._probed(found, report)

    def _probed(self, found: Payload, report: pytest.TestReport) -> None:
        module = self.modules.setdefault(found["name"], Module())
        module.take(found, report.nodeid)
        fresh = [finding for finding in found["findings"] if finding["key"] not in self._reported]
        self._reported.update(finding["key"] for finding in fresh)
        self.codes.update(finding["code"] for finding in fresh)
        failing = [finding for finding in fresh if finding["fails"]]
        if failing:
            self._fail(failing, found["name"], report)

    def _fail(self, findings: list[Told], name: str, report: pytest.TestReport) -> None:
        """A failed report beside that of the test, whose own outcome stays as it is."""
        suffix = f"::attn-guard[{name}]"
        path, line, test = report.location
        failed = pytest.TestReport(
            nodeid=report.nodeid + suffix,
            location=(path, line, test + suffix),
            keywords={},
            outcome="failed",
            longrepr=FindingsRepr(findings),  # type: ignore[arg-type]
            when="call",
        )
        if self.session is not None:
            self.session.testscollected += 1  # or the progress would pass 100%
        self.config.hook.pytest_runtest_logreport(report=failed)
        last = getattr(self.config.pluginmanager.get_plugin("lfplugin"), "lastfailed", None)
        if isinstance(last, dict):  # --lf can only run the test itself again
            last.pop(failed.nodeid, None)
            last[report.nodeid] = True

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        if self.config.getoption("no_summary"):
            return
        terminalreporter.section("attn-guard", sep="=", bold=True)
        for line in self._lines():
            terminalreporter.write_line(line)

    def _lines(self) -> Iterator[str]:
        yield f"linted {counted(self.linted, 'file')}"
        attending = {name: module for name, module in self.modules.items() if module.sites}
        sites = sum(len(module.sites) for module in attending.values())
        without = len(self.modules) - len(attending)
        rest = f"; {without} without attention" if without else ""
        probed = f"{counted(len(attending), 'module')}, {counted(sites, 'attention site')}"
        yield f"probed {probed} in {self.seconds:.1f} s{rest}"
        for name, module in sorted(attending.items()):
            yield f"  {name}{_places(module)} (first in {module.test})"
        if self.codes:
            yield "found " + ", ".join(f"{code}: {count}" for code, count in sorted(self.codes.items()))
        yield from (f"note: {note}" for note in self.notes)


def _places(module: Module) -> str:
    named = [site for site in module.sites if site]
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    return f": {', '.join(named[:SHOWN])}{more}" if named else ""


class Module:
    """What became known of the modules of one class."""

    def __init__(self) -> None:
        self.sites: dict[str, None] = {}
        self.test = ""

    def take(self, found: Payload, test: str) -> None:
        self.sites.update(dict.fromkeys(found["sites"]))
        self.test = self.test or test
