"""Writes reports: one file per format, each with ``render(report) -> str``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_guard.findings import Report

FORMATS = {
    "full": "text",
    "concise": "concise",
    "json": "json",
    "sarif": "sarif",
    "github": "github",
    "gitlab": "gitlab",
    "junit": "junit",
}
FOR_PEOPLE = ("full", "concise")


def render(report: Report, format: str, *, color: bool = False) -> str:
    """The report in one of the `FORMATS`; ``color`` only matters to those for people."""
    module = importlib.import_module(f"{__name__}.{FORMATS[format]}")
    text: str = module.render(report, color=color) if format in FOR_PEOPLE else module.render(report)
    return text
