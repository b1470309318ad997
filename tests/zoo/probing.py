"""Probes a whole model, then each attention class inside it on the call that it receives there."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

import attn_guard
from attn_guard.contract import Contract
from attn_guard.findings import Finding, Report
from attn_guard.probe.calling import given
from attn_guard.probe.inside import calls_inside


@dataclass
class Probed:
    """What a check of one module showed. ``declined`` says why nothing is known; "" where it was probed."""

    name: str
    path: str = ""
    sites: int = 0
    declined: str = ""
    seconds: float = 0.0
    findings: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Outcome:
    """What the zoo knows of one model."""

    kind: str
    reached: str
    error: str = ""
    seconds: float = 0.0
    whole: Probed | None = None
    classes: list[Probed] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def probe_model(
    kind: str, model: nn.Module, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Outcome:
    """Checks a model and its attention classes on one call of it."""
    start = time.perf_counter()
    kwargs = kwargs or {}
    whole, report = probed(type(model).__name__, "", model, args, kwargs)
    parts = attention_parts(model, report)
    calls = calls_inside(model, given(args, kwargs, Contract(), model), list(parts))
    classes = []
    for path, name in parts.items():
        call = calls.get(path)
        if call is None:
            continue
        if isinstance(call, Exception):
            classes.append(Probed(name, path, declined=str(call)))
        else:
            part, batch_first = model.get_submodule(path), None if call.batch_first else False
            classes.append(probed(name, path, part, call.args, call.kwargs, batch_first)[0])
    return Outcome(kind, "ran", seconds=time.perf_counter() - start, whole=whole, classes=classes)


def attention_parts(model: nn.Module, report: Report) -> dict[str, str]:
    """Path → class of the first module of each class that holds an attention computation or is called attention."""
    holders = {site.name for site in report.sites}
    found: dict[str, str] = {}
    for path, part in model.named_modules():
        name = type(part).__qualname__
        says_so = "attention" in name.lower() or "attn" in name.lower()
        if path and (path in holders or says_so) and name not in found.values():
            found[path] = name
    return found


def probed(
    name: str, path: str, module: nn.Module, args: Any, kwargs: Any, batch_first: bool | None = None
) -> tuple[Probed, Report]:
    start = time.perf_counter()
    report = attn_guard.check(module, args, kwargs, batch_first=batch_first)
    notes = [finding for finding in report if finding.code == "ATN903"]
    declined = "; ".join(note for finding in notes for note in finding.notes[:1])
    if not report.sites and not declined:
        declined = "no attention computation shows"
    findings = [finding for finding in report if finding.code != "ATN903"]
    result = Probed(
        name, path, len(report.sites), declined, time.perf_counter() - start, [_told(finding) for finding in findings]
    )
    return result, report


def _told(finding: Finding) -> dict[str, Any]:
    place = finding.location
    return {
        "code": finding.code,
        "severity": str(finding.severity),
        "place": f"{place.path.partition('site-packages/')[2] or place.path}:{place.line}",
        "module": place.module,
        "message": finding.message,
        "expected": finding.expected,
        "found": finding.found,
        "notes": list(finding.notes[:3]),
    }


def one_thread() -> None:
    torch.set_num_threads(1)
