"""Lints sources: one item per file that can hold attention."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from attn_guard.errors import UsageError
from attn_guard.lint.files import python_files
from attn_guard.lint.prefilter import may_matter
from attn_guard.pytest_session.failure import FindingsRepr
from attn_guard.pytest_session.payload import attach, payload

if TYPE_CHECKING:
    from attn_guard.config import Config, Nearest
    from attn_guard.findings import Report

NAME = "attn-guard"


class FindingsError(Exception):
    """Raised by a lint item whose file has findings."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


class LintItem(pytest.Item):
    """``src/model.py::attn-guard``"""

    settings: Config
    found: Report | None = None

    def runtest(self) -> None:
        from attn_guard.lint.run import lint_paths  # late: it brings the parser

        settings = self.settings
        report = lint_paths([self.path], select=settings.select, ignore=settings.ignore, preview=settings.preview)
        self.found = settings.apply(report)
        if not self.found.ok:
            raise FindingsError(self.found)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, FindingsError):
            findings = payload("lint", "", excinfo.value.report)["findings"]
            return FindingsRepr([finding for finding in findings if finding["fails"]])
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{NAME} {self.nodeid.removesuffix(f'::{NAME}')}"


class LintFile(pytest.File):
    """A source file with its one lint item."""

    settings: Config

    def collect(self) -> Iterator[LintItem]:
        item = LintItem.from_parent(self, name=NAME)
        item.settings = self.settings
        item.add_marker("attn_guard")
        yield item


class Sources:
    """Collects the files that pytest walks through, and the sources that stand beside the tests. For each of them, the
    configuration that is nearest to it counts."""

    def __init__(self, settings: Config, nearest: Nearest) -> None:
        self.settings = settings  # where the run starts: they say what stands beside the tests
        self.nearest = nearest

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> LintFile | None:
        try:
            return self._file(file_path, parent) if file_path.suffix == ".py" else None
        except UsageError as error:
            raise pytest.Collector.CollectError(f"attn-guard: {error}") from None

    @pytest.hookimpl(tryfirst=True)  # before -k, -m and --lf choose among the items
    def pytest_collection_modifyitems(
        self, session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if _names_tests(config):
            return
        known = {item.path.resolve() for item in items if isinstance(item, LintItem)}
        try:
            for path in self._beside(config):
                file = self._file(path, session) if path.resolve() not in known else None
                if file is not None:
                    items.extend(file.collect())
        except UsageError as error:
            raise pytest.UsageError(f"attn-guard: {error}") from None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if isinstance(item, LintItem) and call.when == "call":
            attach(report, [payload("lint", item.nodeid.partition("::")[0], item.found, seconds=call.duration)])
        return report

    def _file(self, path: Path, parent: pytest.Collector) -> LintFile | None:
        if not _matters(path):
            return None
        settings = self.nearest.of(path)
        if settings.excludes(path):
            return None
        file: LintFile = LintFile.from_parent(parent, path=path)
        file.settings = settings
        return file

    def _beside(self, config: pytest.Config) -> Iterator[Path]:
        roots = [self.settings.root / path for path in self.settings.paths] or list(_packages(config.rootpath))
        return python_files(roots)


def _names_tests(config: pytest.Config) -> bool:
    """Whether single files or tests were asked for: then only those are linted."""
    folder = config.invocation_params.dir
    return any("::" in arg or (folder / arg).is_file() for arg in config.args)


def _packages(root: Path) -> Iterable[Path]:
    """Where sources usually stand: in ``src``, in packages at the top, in modules at the top."""
    packages = [path.parent for path in sorted(root.glob("*/__init__.py"))]
    return [*([root / "src"] if (root / "src").is_dir() else []), *packages, *sorted(root.glob("*.py"))]


def _matters(path: Path) -> bool:
    try:
        return may_matter(path.read_bytes())
    except OSError:
        return False
