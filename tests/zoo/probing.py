"""Probes a whole model, then each attention class of it on the call that it receives there, as a check does.

A check looks at the parts only of a model that shows nothing as a whole; here each class counts.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import nn

from attn_guard.contract import Contract, declared_contract
from attn_guard.findings import Detector, Finding, Report
from attn_guard.gotchas.registry import select
from attn_guard.probe.calling import Call, given
from attn_guard.probe.check import report_of
from attn_guard.probe.copies import copied
from attn_guard.probe.designs import known_contract
from attn_guard.probe.flow import Flow
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.inside import calls_inside
from attn_guard.probe.record import record

HOLDS_NONE = "no two values of content meet in a product, and there are no weights"
_MEETINGS = frozenset("mul mul_ div mm bmm addmm baddbmm matmul linear addcmul".split())
_WEIGHTS = frozenset("_softmax _safe_softmax softmax sigmoid".split())


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
    kind: str, model: nn.Module, kwargs: dict[str, Any] | None = None, known: Collection[str] = ()
) -> Outcome:
    """Checks a model and its attention classes on one call of it, but for classes that are ``known``."""
    start = time.perf_counter()
    call = given(None, kwargs or {}, Contract(), model)
    whole, report = probed(class_name(model), "", model, call)
    parts = {path: name for path, name in attention_parts(model, report).items() if name not in known}
    classes = [replace(whole, findings=[])] if parts.pop("", "") else []
    for path, received in (calls_inside(model, call, list(parts)) if parts else {}).items():
        name = parts[path]
        if isinstance(received, Exception):
            classes.append(Probed(name, path, declined=str(received)))
        else:
            classes.append(probed(name, path, model.get_submodule(path), received)[0])
    return Outcome(kind, "ran", seconds=time.perf_counter() - start, whole=whole, classes=classes)


def attention_parts(model: nn.Module, report: Report) -> dict[str, str]:
    """Path → class of the first module of each class that holds an attention computation or is called attention."""
    holders = {site.name for site in report.sites}
    found: dict[str, str] = {}
    for path, part in model.named_modules():
        name = class_name(part)
        called = type(part).__qualname__.lower()
        if (path in holders or "attention" in called or "attn" in called) and name not in found.values():
            found[path] = name
    return found


def class_name(module: nn.Module) -> str:
    """The name of a class; outside of `transformers`, which gives each class a name of its own, with its module."""
    cls = type(module)
    library = cls.__module__.partition(".")[0]
    return cls.__qualname__ if library == "transformers" else f"{cls.__module__}.{cls.__qualname__}"


def probed(name: str, path: str, module: nn.Module, call: Call) -> tuple[Probed, Report]:
    start = time.perf_counter()
    turned = Contract(batch_first=None if call.batch_first else False)
    stated = turned.over(declared_contract(module).over(known_contract(module)))
    report = report_of(module, call, stated, select(detector=Detector.PROBE))
    notes = [finding for finding in report if finding.code == "ATN903"]
    declined = "; ".join(note for finding in notes for note in finding.notes[:1])
    if not report.sites and not declined:
        declined = "no attention computation shows" if holds_attention(module, call) else HOLDS_NONE
    findings = [_told(finding) for finding in report if finding.code != "ATN903"]
    return Probed(name, path, len(report.sites), declined, time.perf_counter() - start, findings), report


def holds_attention(module: nn.Module, call: Call) -> bool:
    """Whether a run has a product of two values of content, or weights: a projection or a bias for attention has
    neither."""
    args, kwargs = copied((call.args, call.kwargs))
    fresh = replace(call, args=args, kwargs=kwargs)
    with preserved(module, 0):
        flow = Flow.of(record(module, args, kwargs, fresh.names(module)))
    return any(
        op.name in _WEIGHTS or (op.name in _MEETINGS and len(flow.content.intersection(op.inputs)) > 1)
        for op in flow.tape.ops
    )


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
