"""The source lines that a place is in, in a file or in a cell of a notebook."""

from __future__ import annotations

import linecache
from functools import lru_cache
from pathlib import Path

from attn_guard.findings import Location
from attn_guard.notebook import Notebook, NotebookError


def lines_around(place: Location) -> list[str]:
    """The lines of the file, or of the cell, that a place is in; none where it cannot be read."""
    if place.cell:
        notebook = _notebook(place.path)
        return notebook.lines_of(place.cell) if notebook else []
    linecache.checkcache(place.path)
    return linecache.getlines(place.path)


def in_file(place: Location) -> Location:
    """The place in the file itself: of a line of a cell, the line of the file that holds it, without columns."""
    if not place.cell:
        return place
    notebook = _notebook(place.path)
    line = notebook.line_in_file(place.cell, place.line) if notebook else 1
    return Location(place.path, line, module=place.module)


def _notebook(path: str) -> Notebook | None:
    try:
        stamp = Path(path).stat().st_mtime_ns
        return _read(path, stamp)
    except (OSError, NotebookError):
        return None


@lru_cache(maxsize=1)
def _read(path: str, stamp: int) -> Notebook:
    return Notebook(Path(path).read_bytes())
