"""Probes a whole model, then each attention class of it on the call that it receives there, as a check does.

A check looks at the parts only of a model that shows nothing as a whole; here each class counts.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
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
from attn_guard.probe.flow import LAYOUT, MATMUL, PRODUCT, SOFTMAX, Flow, operands
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.inside import calls_inside
from attn_guard.probe.record import record
from attn_guard.probe.tape import Op

HOLDS_NONE = (
    "no two values of content are multiplied and summed, and nothing is weighted by a softmax or an exponential"
)
_WEIGHTS = SOFTMAX | {"_log_softmax", "exp", "exp_"}
_SUMS = frozenset("sum mean cumsum".split())


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
    """Whether a run has weights, or a contraction in which two values of content meet.

    A projection for attention has neither, and nor has a gate: content times a sigmoid of content, number by number.
    """
    args, kwargs = copied((call.args, call.kwargs))
    fresh = replace(call, args=args, kwargs=kwargs)
    with preserved(module, 0):
        flow = Flow.of(record(module, args, kwargs, fresh.names(module)))
    return any(op.name in _WEIGHTS or _is_contraction(flow, op) for op in flow.tape.ops)


def _is_contraction(flow: Flow, op: Op) -> bool:
    if op.name in MATMUL:
        return flow.content.issuperset(operands(op))
    meet = op.name in PRODUCT and len(flow.content.intersection(op.inputs)) > 1
    return meet and any(
        after.name in _SUMS for value in _moved(flow, op.output) for after in flow.tape.consumers(value)
    )


def _moved(flow: Flow, value: int) -> Iterator[int]:
    """A value, and what is made of it by moving its axes."""
    pending = [value]
    while pending:
        yield (moved := pending.pop())
        pending += [output for op in flow.tape.consumers(moved) if op.name in LAYOUT for output in op.outputs]


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
