"""One line per finding, for editors and for grep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attn_guard.report.excerpt import shown_place
from attn_guard.report.style import Style
from attn_guard.report.text import closing, fix_mark, fixable

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Report


def render(report: Report, *, color: bool = False) -> str:
    style = Style(color=color)
    return "\n".join([*(line(found, style) for found in report.findings), closing(report, style), *fixable(report)])


def line(found: Finding, style: Style) -> str:
    """``path:line:column: CODE name: message``, and ``[*]`` where ``--fix`` mends it."""
    place = found.location
    code = style.severity(found.code, found.severity)
    module = f" (in {place.module})" if place.module else ""
    return f"{style.paint(shown_place(place), 'bold')}: {code} {found.name}: {found.message}{module}{fix_mark(found)}"
