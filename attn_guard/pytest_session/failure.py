"""Findings as pytest shows failures: the text in the failures section, the headline in the short summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _pytest._io import TerminalWriter

    from attn_guard.pytest_session.payload import Told


@dataclass(frozen=True)
class Crash:
    """What the short summary reads."""

    message: str
    path: str
    lineno: int = 0


class FindingsRepr:
    """The ``longrepr`` of a report that fails because of findings."""

    def __init__(self, findings: Sequence[Told]) -> None:
        self.text = "\n\n".join(finding["text"] for finding in findings)
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        self.reprcrash = Crash(findings[0]["headline"] + more, findings[0]["key"])

    def __str__(self) -> str:
        return self.text

    def toterminal(self, writer: TerminalWriter) -> None:
        for line in self.text.splitlines():
            writer.line(line)
