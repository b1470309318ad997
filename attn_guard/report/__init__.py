"""Writes reports: one file per format, each with ``render(report) -> str``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_guard.findings import Report

FORMATS = {"full": "text", "concise": "concise", "json": "json"}


def render(report: Report, format: str, *, color: bool = False) -> str:
    """The report in one of the `FORMATS`; ``color`` only matters to those that people read."""
    module = importlib.import_module(f"{__name__}.{FORMATS[format]}")
    text: str = module.render(report) if format == "json" else module.render(report, color=color)
    return text
