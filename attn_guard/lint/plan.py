"""What a lint run looks for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from attn_guard.findings import Detector
from attn_guard.gotchas.registry import TOOL_CODES, Entry, matches, select

SYNTAX_ERROR, UNUSED_SUPPRESSION, UNKNOWN_CODE = "ATN900", "ATN901", "ATN902"


@dataclass(frozen=True)
class Plan:
    """The gotchas of a run, and the codes of the tool itself that it reports.

    ``certain`` are the codes that only this run could find: a comment that silences one of them is known to be unused
    where there is nothing to silence. Where unused comments are asked for by their full code, all codes count.
    """

    entries: tuple[Entry, ...]
    own: frozenset[str]
    certain: frozenset[str]

    @classmethod
    def of(cls, wanted: Iterable[str], unwanted: Iterable[str], *, preview: bool) -> Plan:
        """Raises `attn_guard.errors.UsageError` for an unknown code."""
        wanted, unwanted = tuple(wanted), tuple(unwanted)
        chosen = select(wanted, unwanted, preview=preview, detector=Detector.LINT)
        own = {
            code
            for code in TOOL_CODES
            if not any(matches(prefix, code) for prefix in unwanted)
            and (not wanted or code == SYNTAX_ERROR or any(matches(prefix, code) for prefix in wanted))
        }
        every = UNUSED_SUPPRESSION in wanted
        certain = (entry.gotcha.code for entry in chosen if every or Detector.PROBE not in entry.detectors)
        return cls(chosen, frozenset(own), frozenset(certain))
