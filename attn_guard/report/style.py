"""Colours and glyphs, as far as the terminal at hand can show them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TextIO

from attn_guard.findings import Severity

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
_SEVERITY = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}
_GLYPHS = {"none": ("·", "."), "seen": ("■", "o"), "leak": ("✗", "X"), "dot": ("·", "-"), "cut": ("…", "...")}


@dataclass(frozen=True, slots=True)
class Style:
    """How a text report may be drawn. Glyphs carry the meaning; colour only helps."""

    color: bool = False
    ascii: bool = False

    def paint(self, text: str, *names: str) -> str:
        if not self.color or not text:
            return text
        return f"\033[{';'.join(_CODES[name] for name in names)}m{text}\033[0m"

    def severity(self, text: str, severity: Severity) -> str:
        return self.paint(text, "bold", _SEVERITY[severity])

    def glyph(self, name: str) -> str:
        return _GLYPHS[name][self.ascii]


def needs_ascii(stream: TextIO | None = None) -> bool:
    """Whether a stream (standard output by default) cannot show the glyphs."""
    encoding = getattr(stream or sys.stdout, "encoding", None) or "utf-8"
    try:
        "".join(glyph for glyph, _ in _GLYPHS.values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def wants_color(stream: TextIO) -> bool:
    """Colour goes to terminals only, unless NO_COLOR or FORCE_COLOR say otherwise."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def counted(number: int, noun: str) -> str:
    """ "1 error", "2 errors"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
