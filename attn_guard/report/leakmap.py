"""The influence of input positions on output positions, drawn as a small grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_guard.report.style import Style

WIDEST = 24  # positions; a larger map is cut
_GLYPHS = ("none", "seen", "leak")
_COLORS = {"none": "dim", "seen": "green", "leak": "red"}


def draw(leak_map: Sequence[Sequence[int]], style: Style) -> Iterator[str]:
    """One line per output position, with a head line and a legend. 0 no influence, 1 allowed, 2 must not be."""
    columns = min(max((len(row) for row in leak_map), default=0), WIDEST)
    cell = len(str(columns - 1))
    head = " ".join(f"{column:>{cell}}" for column in range(columns))
    yield f"{'out':>5} {head}  {style.paint('input position', 'dim')}"
    for position, row in enumerate(leak_map[:WIDEST]):
        kinds = [_GLYPHS[value] for value in row[:columns]]
        marks = [style.paint(f"{style.glyph(kind):>{cell}}", _COLORS[kind]) for kind in kinds]
        yield f"{position:>5} {' '.join(marks)}"
    if len(leak_map) > WIDEST or any(len(row) > columns for row in leak_map):
        yield f"{style.glyph('cut'):>5} the first {WIDEST} of {max(len(leak_map), *map(len, leak_map))} positions"
    meanings = (("seen", "influences"), ("leak", "influences, but must not"), ("none", "no influence"))
    present = {_GLYPHS[value] for row in leak_map for value in row}
    legend = [f"{style.glyph(kind)} {meaning}" for kind, meaning in meanings if kind in present]
    yield f"{'':>5} {style.paint('   '.join(legend), 'dim')}"
