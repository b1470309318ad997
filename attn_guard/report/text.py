"""The full report for people: each finding with its source, its numbers and its fix."""

from __future__ import annotations

from collections.abc import Iterator

from attn_guard.anatomy import Site, Size, StepKind
from attn_guard.findings import Finding, Report, Severity
from attn_guard.report import leakmap
from attn_guard.report.excerpt import Mark, excerpts
from attn_guard.report.style import Style, counted, needs_ascii


def render(report: Report, *, color: bool = False, ascii: bool | None = None) -> str:
    """The report as a terminal shows it. ``ascii`` None: as the encoding of standard output demands."""
    style = Style(color=color, ascii=needs_ascii() if ascii is None else ascii)
    parts = [report.title] if report.title else []
    parts += [finding(found, style) for found in report.findings]
    if not report.files:  # a probe report
        parts += ["\n".join(lines) for lines in (_sites(report, style), _assumptions(report)) if lines]
    return "\n\n".join([*parts, "\n".join((closing(report, style), *fixable(report)))])


def finding(found: Finding, style: Style) -> str:
    """One finding, without a line end."""
    return "\n".join(_finding(found, style))


def _finding(found: Finding, style: Style) -> Iterator[str]:
    head = style.severity(f"{found.severity}[{found.code}]", found.severity)
    yield f"{head} {style.paint(found.name, 'bold')}: {found.message}{fix_mark(found)}"
    marks = [Mark(found.location, primary=True)]
    marks += [Mark(place, label) for place, label in found.related if place != found.location]
    yield from excerpts(marks, style)
    for name, value in (("expected", found.expected), ("found", found.found)):
        if value:
            yield f"  {name + ':':<9} {value}"
    if found.leak_map:
        yield from leakmap.draw(found.leak_map, style)
    yield f"  {style.paint('help:', 'bold', 'cyan')} {found.help}"
    yield from (f"  note: {note}" for note in found.notes)
    if found.consequences:
        yield f"  note: this can also bring about {', '.join(_named(code) for code in found.consequences)}"
    if found.reproduce:
        yield f"  reproduce: {found.reproduce}"


def _named(code: str) -> str:
    from attn_guard.gotchas.registry import entries

    entry = entries().get(code)
    return f"{code} {entry.gotcha.name}" if entry else code


def _sites(report: Report, style: Style) -> list[str]:
    if not report.sites:
        return []
    rows = [_site(site, report.title) for site in report.sites]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return [style.paint("attention sites", "bold"), *(f"  {line}".rstrip() for line in lines)]


def _site(site: Site, title: str) -> tuple[str, str, str, str]:
    """Where it is, the shape of its scores, its scale, and what is known about its masks."""
    scores = site.scores
    shape = f"scores {_shape(scores.shape)}" if scores and scores.shape else ""
    masks = [word for word, steps in (("mask", StepKind.MASK), ("bias", StepKind.BIAS)) if site.before_softmax(steps)]
    masks += ["mask after softmax"] if site.after_softmax(StepKind.MASK) else []
    kinds = [word for word, holds in (("causal", site.causal), ("cross", site.cross)) if holds]
    facts = [*(masks if masks or site.causal else ["no mask"]), *kinds]
    unscaled = "no query · key" if site.sizes and Size.HEAD_DIM not in site.sizes else "scale unknown"
    return (
        site.name or title,
        shape,
        f"scale {site.scale}" if site.scale is not None else unscaled,
        ", ".join(facts),
    )


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _assumptions(report: Report) -> list[str]:
    return [f"assumed: {note}" for note in report.assumptions]


def closing(report: Report, style: Style) -> str:
    """The last line: what was found, in how much."""
    silenced = f" ({len(report.suppressed)} silenced)" if report.suppressed else ""
    severities = [found.severity for found in report.findings]
    counts = [counted(severities.count(level), level) for level in Severity if level in severities and level != "info"]
    counts += [f"{severities.count(Severity.INFO)} to know"] if Severity.INFO in severities else []
    clean = "no mistakes found" if report.sites or report.files else "no attention found"
    verdict = ", ".join(counts) or clean
    color = "red" if Severity.ERROR in severities else "yellow" if Severity.WARNING in severities else "green"
    return f"{style.paint(verdict, 'bold', color)}{_scope(report)}{silenced}"


def fix_mark(found: Finding) -> str:
    """Says of a finding that ``--fix`` mends it."""
    return " [*]" if found.fix and found.fix.safe else ""


def mended_by(found: Finding) -> str:
    """The options that mend a finding; "" where it has no fix."""
    return "" if found.fix is None else "--fix" if found.fix.safe else "--fix --unsafe-fixes"


def fixable(report: Report) -> Iterator[str]:
    """What the options that mend can do, where there is something to mend."""
    fixes = [found.fix for found in report.findings if found.fix]
    safe = sum(fix.safe for fix in fixes)
    if safe:
        yield f"[*] {safe} fixable with --fix"
    if len(fixes) > safe:
        yield f"{len(fixes) - safe} {'more ' if safe else ''}fixable with --fix --unsafe-fixes"


def _scope(report: Report) -> str:
    if report.files:
        return f" in {counted(report.files, 'file')}"
    return f" in {counted(len(report.sites), 'attention site')}" if report.sites else ""
