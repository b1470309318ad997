"""What attn-guard reports: findings, where they are, and the report that holds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_guard.anatomy import Site


class Severity(StrEnum):
    """How sure attn-guard is that something is wrong.

    ``ERROR``: the result is wrong or the call crashes. ``WARNING``: almost surely not what was
    meant. ``INFO``: worth knowing; never fails a run.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Detector(StrEnum):
    """Which reader found it: ``LINT`` read the source, ``PROBE`` ran the module."""

    LINT = "lint"
    PROBE = "probe"


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a source file. Lines and columns count from 1; ``end_column`` is exclusive.

    A place known only by its line has ``column`` 0. In a notebook, lines count from the first of the ``cell``, and
    cells from 1; elsewhere ``cell`` is 0. ``module`` is the path of the module inside the
    probed model ("h.0.attn"; "" for the model itself or for a place read from source).
    """

    path: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    module: str = ""
    cell: int = 0

    @property
    def installed(self) -> bool:
        """Whether the place lies in an installed package, out of its user's reach."""
        return "site-packages" in self.path

    def __str__(self) -> str:
        place = f"{self.path}:cell {self.cell}:{self.line}" if self.cell else f"{self.path}:{self.line}"
        return f"{place}:{self.column}" if self.column else place


@dataclass(frozen=True, slots=True)
class Edit:
    """Puts ``text`` in the place of the characters of a span; where the span is empty, it is inserted there."""

    location: Location
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits of one file that mend a finding.

    A ``safe`` fix is certain to be what was meant. Any other changes what the code computes in a way that its author
    should look at, and is made on request only.
    """

    edits: tuple[Edit, ...]
    safe: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake at one place.

    ``message`` says what is wrong and never contains the fix; ``help`` is the one-line fix.
    ``expected`` and ``found`` are the two numbers (or words) that disagree. ``related`` is a second
    place with a label, such as "normalised here". ``consequences`` are codes of faults that follow
    from this one. ``leak_map`` is an influence map, one row per output position and one column per
    input position: 0 no influence, 1 allowed influence, 2 influence that must not be. ``fix`` is what ``--fix`` would
    change in the source, None where that is not certain.
    """

    code: str
    name: str
    severity: Severity
    message: str
    location: Location
    help: str
    detector: Detector = Detector.LINT
    related: tuple[tuple[Location, str], ...] = ()
    expected: str = ""
    found: str = ""
    notes: tuple[str, ...] = ()
    consequences: tuple[str, ...] = ()
    reproduce: str = ""
    leak_map: tuple[tuple[int, ...], ...] = ()
    fix: Fix | None = None

    @property
    def fails(self) -> bool:
        """Whether this finding fails a run."""
        return self.severity is not Severity.INFO

    @property
    def sort_key(self) -> tuple[str, int, int, int, str]:
        place = self.location
        return (place.path, place.cell, place.line, place.column, self.code)


def placed(finding: Finding, place: Callable[[Location], Location]) -> Finding:
    """A finding with all of its places changed."""
    edits = finding.fix.edits if finding.fix else ()
    moved = tuple(replace(edit, location=place(edit.location)) for edit in edits)
    return replace(
        finding,
        location=place(finding.location),
        related=tuple((place(other), label) for other, label in finding.related),
        fix=replace(finding.fix, edits=moved) if finding.fix else None,
    )


@dataclass(frozen=True)
class Report:
    """Everything one run found. ``print(report)`` shows it as the terminal does.

    ``sites`` are the attention computations seen, ``assumptions`` what was inferred rather than
    declared, ``files`` how many source files were read, ``regions`` how many pieces of them were parsed.
    """

    findings: tuple[Finding, ...] = ()
    sites: tuple[Site, ...] = ()
    assumptions: tuple[str, ...] = ()
    files: int = 0
    regions: int = 0
    title: str = ""
    suppressed: tuple[Finding, ...] = field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """True when nothing at error or warning level was found."""
        return not any(finding.fails for finding in self.findings)

    @property
    def codes(self) -> Counter[str]:
        return Counter(finding.code for finding in self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __str__(self) -> str:
        from attn_guard.report import text

        return text.render(self)

    def to_json(self) -> str:
        from attn_guard.report import json

        return json.render(self)


def merge(reports: Iterable[Report], title: str = "") -> Report:
    """One report out of several, findings in order of place."""
    parts = list(reports)
    return Report(
        findings=tuple(sorted((f for part in parts for f in part.findings), key=lambda f: f.sort_key)),
        sites=tuple(site for part in parts for site in part.sites),
        assumptions=tuple(dict.fromkeys(note for part in parts for note in part.assumptions)),
        files=sum(part.files for part in parts),
        regions=sum(part.regions for part in parts),
        title=title,
        suppressed=tuple(f for part in parts for f in part.suppressed),
    )


class AttentionFault(AssertionError):
    """Raised by ``assert_sound`` and ``guard(on_finding="raise")``; carries the report."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self.report = report

    def __str__(self) -> str:
        return str(self.report)
