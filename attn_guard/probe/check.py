"""Runs the probes of every gotcha on a module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch import nn

from attn_guard.anatomy import Site
from attn_guard.collection import no_collection
from attn_guard.contract import Contract, MaskMeaning, allowed_codes, declared_contract
from attn_guard.errors import UsageError
from attn_guard.findings import AttentionFault, Detector, Finding, Location, Report, Severity, placed
from attn_guard.gotchas.registry import Entry
from attn_guard.gotchas.registry import select as select_gotchas
from attn_guard.probe.calling import Call, given
from attn_guard.probe.causes import by_cause
from attn_guard.probe.copies import NotCopiedError
from attn_guard.probe.designs import known_contract
from attn_guard.probe.fuzz import fuzzed
from attn_guard.probe.hygiene import device_and_dtype, one_thread, preserved
from attn_guard.probe.inside import calls_inside
from attn_guard.probe.parts import parts
from attn_guard.probe.replay import ReplayError
from attn_guard.probe.shorten import shortened, with_fewer_samples
from attn_guard.probe.wrappers import original, unreadable
from attn_guard.probe.xray import XRay, find_call, look
from attn_guard.suppressions import Suppressions

_SCALES = ("ATN101", "ATN102", "ATN103")  # judged in the whole, where the configuration around a part is known


def check(
    module: nn.Module,
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    causal: bool | None = None,
    cross: bool | None = None,
    masks: Mapping[str, MaskMeaning] | None = None,
    scale: float | None = None,
    window: int | None = None,
    segments: str | None = None,
    batch_first: bool | None = None,
    padding_side: Literal["left", "right"] | None = None,
    positions: bool | None = None,
    cache: str | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    preview: bool = False,
    seed: int = 0,
    fuzz: int = 0,
) -> Report:
    """Run a module on small inputs and report the mistakes in its attention.

    ``args`` is a tuple of positional arguments (or a single tensor) and ``kwargs`` the keyword arguments to call it
    with; without either, the module is called as its signature and parameters suggest. Of long sequences only the
    beginning is looked at, where the module takes it. The promises (``causal`` … ``cache``) are those of `Contract`.
    The module runs in evaluation mode; its parameters, buffers, attributes, mode and all random streams are left as
    they were. With ``fuzz`` (needs hypothesis), as many other sizes are tried, equal ones among them (time = batch, one
    sample, one position), and each fault names the smallest sizes that show it.

    Where nothing is wrong with a model as a whole, each class of attention in it is looked at by itself, on the very
    call that it receives there.

    Nothing is raised for what is found. A module that cannot be called gives an ATN903 note. Raises `UsageError` for
    an unknown code or something that is no module.
    """
    if not isinstance(module, nn.Module):
        raise UsageError(f"check() takes a torch.nn.Module, got {_article(module)}; build the module first")
    module = original(module)
    gotchas = select_gotchas(select, ignore, preview=preview, detector=Detector.PROBE)
    declared = Contract(
        causal=causal,
        cross=cross,
        masks=masks,
        scale=scale,
        window=window,
        segments=segments,
        batch_first=batch_first,
        padding_side=padding_side,
        positions=positions,
        cache=cache,
    ).over(declared_contract(module).over(known_contract(module)))
    with one_thread():
        return _report(module, args, kwargs, declared, gotchas, seed, fuzz)


def _report(
    module: nn.Module,
    args: Any,
    kwargs: Mapping[str, Any] | None,
    declared: Contract,
    gotchas: Iterable[Entry],
    seed: int,
    fuzz: int,
) -> Report:
    title = type(module).__name__
    reason = unreadable(module, (args, dict(kwargs or {})))
    if reason:
        return Report(findings=(_unreadable(title, reason),), title=title)
    if args is None and kwargs is None:
        seen, tried = find_call(module, declared, seed)
    else:
        seen = _given(module, given(args, kwargs, declared, module), declared, seed)
        tried = _failure(seen)
    if seen is None:
        return Report(findings=(not_probed(title, ("forward takes nothing that could be filled in",)),), title=title)
    gotchas = tuple(gotchas)
    report = _judged(seen, tried, gotchas)
    if report.ok and seen.tape.failure is None:
        report = _with_parts(report, seen, gotchas)
    if not fuzz or seen.tape.failure is not None:
        return report

    def check_at(call: Call) -> Report:
        seen = _recorded(module, call, declared, seed)
        return _judged(seen, _failure(seen), gotchas)

    return fuzzed(report, seen.call, check_at, fuzz, seed)


@no_collection()
def _judged(seen: XRay, tried: list[str], gotchas: Iterable[Entry]) -> Report:
    """What the gotchas find in a recorded call, as a report."""
    module, title = seen.module, type(seen.module).__name__
    try:
        findings = list(_findings(seen, gotchas))
    except ReplayError as error:
        findings = [not_probed(title, (f"{seen.call}: ran, but cannot be followed: {error}",))]
    if seen.tape.failure is not None and not findings:
        findings = [not_probed(title, tuple(tried))]
    if not findings and not seen.sites and not seen.pooled and seen.declined:
        findings = [_left_alone(title, seen)]
    kept, silenced = _suppressed(by_cause(findings), allowed_codes(module))
    return Report(
        findings=tuple(sorted(kept, key=lambda finding: finding.sort_key)),
        sites=_sites(seen),
        assumptions=seen.assumptions,
        title=title,
        suppressed=tuple(silenced),
    )


def report_of(module: nn.Module, call: Call, declared: Contract, gotchas: Iterable[Entry], seed: int = 0) -> Report:
    """What the gotchas find in a call of a module, whose parts are not looked at by themselves."""
    seen = _given(module, call, declared, seed)
    return _judged(seen, _failure(seen), gotchas)


def _with_parts(report: Report, seen: XRay, gotchas: Iterable[Entry]) -> Report:
    """A report of a model with what fails in its parts, each looked at by itself on the call that it receives."""
    module, held = seen.module, parts(seen.module, report.sites)
    received = calls_inside(module, seen.call, list(held), seen.seed) if held else {}
    found: list[Finding] = []
    assumptions = dict.fromkeys(report.assumptions)
    whole = {site.name for site in report.sites}
    for path, call in received.items():
        if isinstance(call, NotCopiedError):
            continue
        part = held[path]
        stated = Contract(scale=seen.intent.declared.scale).over(declared_contract(part).over(known_contract(part)))
        own = report_of(part, call, stated, gotchas, seen.seed)
        failing = [finding for finding in own if finding.fails and not (path in whole and finding.code in _SCALES)]
        found += (placed(finding, partial(_inside, path)) for finding in failing)
        assumptions.update(dict.fromkeys(own.assumptions if failing else ()))
    if not found:
        return report
    kept, silenced = _suppressed(by_cause([*report.findings, *found]), allowed_codes(module))
    return replace(
        report,
        findings=tuple(sorted(kept, key=lambda finding: finding.sort_key)),
        assumptions=tuple(assumptions),
        suppressed=(*report.suppressed, *silenced),
    )


def _inside(path: str, place: Location) -> Location:
    """The place of a finding in a part, in the model that the part is in."""
    return replace(place, module=f"{path}.{place.module}".rstrip("."))


def _given(module: nn.Module, call: Call, declared: Contract, seed: int) -> XRay:
    """A given call, recorded; on short sequences, or else few samples, where the module takes them and shows its
    attention on them."""
    short = shortened(call.args, call.kwargs, least=(declared.window or 0) + 2)
    few = with_fewer_samples(call.args, call.kwargs) if call.batch_first else None
    smaller = [replace(call, args=cut[0], kwargs=dict(cut[1])) for cut in (short, few) if cut is not None]
    for attempt in (*smaller, call):
        seen = _recorded(module, attempt, declared, seed)
        if (seen.sites or seen.pooled) and seen.tape.failure is None:
            break
    return seen


def _recorded(module: nn.Module, call: Call, declared: Contract, seed: int) -> XRay:
    with preserved(module, seed):
        return look(module, call, declared, seed)


def _failure(seen: XRay) -> list[str]:
    failure = seen.tape.failure
    return [] if failure is None else [f"{seen.call}: {type(failure).__name__}: {failure}"]


def _sites(seen: XRay) -> tuple[Site, ...]:
    try:
        return (*(anatomy.site for anatomy in seen.sites), *seen.pooled)
    except ReplayError:
        return ()


def assert_sound(module: nn.Module, args: Any = None, kwargs: Mapping[str, Any] | None = None, **promises: Any) -> None:
    """`check`, and raise `AttentionFault` if anything at error or warning level is found. Takes the same arguments."""
    report = check(module, args, kwargs, **promises)
    if not report.ok:
        raise AttentionFault(report)


def _findings(seen: XRay, gotchas: Iterable[Entry]) -> Iterator[Finding]:
    """What the gotchas find, each with the call that shows it again."""
    reproduce = _reproduce(seen)
    for entry in gotchas:
        if entry.check is not None:
            for site in seen.judged_sites:
                yield from (_of_probe(finding, reproduce) for finding in entry.check(site))
        if entry.probe is not None:
            yield from (_of_probe(finding, reproduce) for finding in entry.probe(seen))


def _of_probe(finding: Finding, reproduce: str) -> Finding:
    return replace(finding, detector=Detector.PROBE, reproduce=finding.reproduce or reproduce)


def _reproduce(seen: XRay) -> str:
    device, dtype = device_and_dtype(seen.module)
    kind = str(dtype).removeprefix("torch.")
    return f"{type(seen.module).__name__}{seen.call}, {kind} on {device}, eval mode, seed {seen.seed}"


def not_probed(title: str, tried: tuple[str, ...]) -> Finding:
    """The ATN903 note of a module that could not be called."""
    return Finding(
        code="ATN903",
        name="not-probed",
        severity=Severity.INFO,
        message=f"{title} could not be called, so nothing is known about it",
        location=Location("<probe>", 0),
        help="pass the inputs of a real call: check(module, args=(...), kwargs={...})",
        detector=Detector.PROBE,
        notes=tuple(f"tried {attempt}" for attempt in tried[:6]),
    )


def _left_alone(title: str, seen: XRay) -> Finding:
    """The ATN903 note of a module whose attention is of a kind that is not probed."""
    first = seen.declined[0]
    return replace(
        not_probed(title, ()),
        message=f"{title} has attention of a kind that is not probed: {first.reason}",
        location=first.location,
        help="nothing to do; the checks are written for softmax(query · keyᵀ) · value",
        notes=tuple(str(one) for one in seen.declined[:6]),
    )


def _unreadable(title: str, reason: str) -> Finding:
    """The ATN903 note of a module of which a run would show nothing that can be relied on."""
    return replace(
        not_probed(title, ()),
        message=f"{title} was not looked at, so nothing is known about it",
        help="check the plain module that this one was made from",
        notes=(reason,),
    )


def _suppressed(findings: Iterable[Finding], allowed: Mapping[str, str]) -> tuple[list[Finding], list[Finding]]:
    """Findings that are reported, and those that a comment on the blamed line or the class allows."""
    kept: list[Finding] = []
    silenced: list[Finding] = []
    for finding in findings:
        quiet = finding.code in allowed or _comments(finding.location.path).silences(
            finding.code, finding.location.line
        )
        (silenced if quiet else kept).append(finding)
    return kept, silenced


def _comments(path: str) -> Suppressions:
    try:
        return Suppressions.of(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Suppressions()


def _article(thing: object) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"
