"""The gotchas: one file per mistake, which holds its text, its lint check and its probe check.

A gotcha file has a docstring (its documentation page), a constant ``GOTCHA`` and one or more of

``check(site)``
    a statement about an anatomy (`attn_guard.anatomy.Site`) that holds however the site was recovered;
    both readers use it;
``lint(function)``
    what only source can show (`attn_guard.lint.function.Function`);
``probe(xray)``
    what only a run can show (`attn_guard.probe.xray.XRay`).

and may have

``fix(blamed)``
    how the source that a finding blames (`attn_guard.lint.fixes.Blamed`) is mended, where that is certain.

The checks yield `Finding`s, made with ``GOTCHA.at(...)``. Adding a gotcha is adding such a file, and its broken and
fixed twin in ``examples/``; `attn_guard.gotchas.registry` finds it and refuses one that is incomplete. A twin has a
function ``build()`` that gives its module and, where the call matters, ``inputs()`` that gives its (args, kwargs).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attn_guard.findings import Detector, Finding, Fix, Location, Severity

if TYPE_CHECKING:
    from attn_guard.anatomy import Step

__all__ = ["Gotcha", "unsafe"]


@dataclass(frozen=True, slots=True)
class Gotcha:
    """One mistake in attention code.

    ``summary`` is the default message of its findings and ``fix`` their default help line. ``preview`` names
    the detectors that only run with ``--preview`` because their precision is not proven yet. ``explains`` are the codes
    of what this mistake can bring about: where the probe finds both, they become its consequences. ``explained_by``
    says
    the same from the other side, for mistakes that many others bring about: codes, or the beginnings of codes
    ("ATN3"). One that is ``on_request`` is advice
    on code that is right, and runs only where its whole code is selected.
    """

    code: str
    name: str
    summary: str
    fix: str
    severity: Severity = Severity.ERROR
    preview: tuple[Detector, ...] = ()
    explains: tuple[str, ...] = ()
    on_request: bool = False
    explained_by: tuple[str, ...] = ()

    def at(
        self,
        place: Step | Location,
        message: str = "",
        *,
        severity: Severity | None = None,
        help: str = "",
        related: tuple[Step | Location, str] | None = None,
        expected: str = "",
        found: str = "",
        notes: tuple[str, ...] = (),
        consequences: tuple[str, ...] = (),
        leak_map: tuple[tuple[int, ...], ...] = (),
    ) -> Finding:
        """A finding of this gotcha at a step or location. ``related`` is a second place and its label."""
        return Finding(
            code=self.code,
            name=self.name,
            severity=severity or self.severity,
            message=message or self.summary,
            location=_location(place),
            help=help or self.fix,
            related=((_location(related[0]), related[1]),) if related else (),
            expected=expected,
            found=found,
            notes=notes,
            consequences=consequences,
            leak_map=leak_map,
        )


def _location(place: Step | Location) -> Location:
    return place if isinstance(place, Location) else place.location


def unsafe(fix: Fix | None) -> Fix | None:
    """The same fix, to be made on request only."""
    return replace(fix, safe=False) if fix else None
