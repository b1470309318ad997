"""A mask whose fill is not far below every score.

What it does
------------
Finds masks that give blocked scores a number which real scores can reach: 0, 1e-9 or -1e-12 (mostly meant as -1e9),
-10, `+inf`, or a product `scores * mask`, which leaves 0. Reports weaker doubts, too: a fill between -50 and -20 is a
warning; one between -1e4 and -50 (Swin's -100, the -1e4 of early GPT-2) is a remark.

Why is this bad
---------------
The softmax gives a key exp(score) in relation to the others. A blocked key with a score of 0 keeps exp(0) = 1, as
much as any ordinary key: there is no mask. At -10 it keeps up to a few hundred-thousandths of an ordinary key's
weight, and all of it once training has made the scores as large as the fill. Scores below -1e4 have been seen in
trained models, whose queries then looked at the future, with a perfect loss and useless samples.

`float("-inf")` has exactly no weight, in every dtype. A row in which every key is blocked then gives NaN; where such
rows occur, `torch.finfo(scores.dtype).min`, applied once, keeps them finite.

A number for whole rows hides nothing, and is no mask: after it, a query whose every key is hidden has a softmax
without NaN. In source, such rows are known by the `any`, `all` or `sum` over the keys that found them.

In source, logits of no query, as in attention pooling, are looked at for that product only, and only where their
softmax goes on to weigh something and is not masked and normalised once more.

The fill of a mask that only the run knows is measured by the probe: a leak at the module's own scores is an error.
Where a causal module hides later keys with a bias of many numbers, the scores are replayed 30 times as large.

Example
-------
{broken}

Use instead
-----------
{fixed}
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attn_guard.anatomy import Site, Stage, Step, StepKind
from attn_guard.findings import Severity
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.fills import WeakFill
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN203",
    name="weak-mask-fill",
    summary="mask fill is not far below every score; blocked keys keep weight",
    fix='fill with float("-inf"), or once with torch.finfo(scores.dtype).min',
    explains=("ATN205", "ATN211", "ATN212", "ATN214"),
)

ORDINARY = -20.0
LARGE = -50.0
EXTREME = -1e4


def check(site: Site) -> Iterator[Finding]:
    """The weights must go on to a value: many a loss fills similarities with something low, and takes a softmax."""
    if site.context is None:
        return
    for mask in site.find(StepKind.MASK, Stage.SCORES):
        if mask.fill is None or _completed(site, mask):
            continue
        severity, message = _judge(mask.fill)
        if severity:
            leaks = ("ATN212", "ATN214") if severity is Severity.ERROR else ()
            yield GOTCHA.at(
                mask, message, severity=severity, expected="-inf", found=f"{mask.fill:g}", consequences=leaks
            )


def _judge(fill: float) -> tuple[Severity | None, str]:
    if fill > ORDINARY:
        return Severity.ERROR, f"mask fill {fill:g} is not below ordinary scores; blocked keys keep weight"
    if fill >= LARGE:
        return Severity.WARNING, f"mask fill {fill:g} is within reach of large scores"
    if fill >= EXTREME:
        return Severity.INFO, f"mask fill {fill:g} holds only while all scores stay far above it"
    return None, ""


def _completed(site: Site, mask: Step) -> bool:
    """``scores * mask`` is only the first half of ``scores * mask + (1 - mask) * -1e9``."""
    following = site.steps[site.steps.index(mask) + 1 :]
    return mask.fill == 0.0 and any(
        step.kind in (StepKind.MASK, StepKind.BIAS) and step.stage is Stage.SCORES and step.used for step in following
    )


def lint(function: Function) -> Iterator[Finding]:
    """``logits * mask`` in attention that has no query, such as pooling."""
    for product in function.zeroed_logits:
        severity, message = _judge(0.0)
        yield GOTCHA.at(product.location, message, severity=severity, expected="-inf", found="0")


def probe(xray: XRay) -> Iterator[Finding]:
    """Hidden keys that have weight: at the module's own scores, or once the scores have grown."""
    masked = [anatomy for delivery in xray.handed.promised for anatomy in delivery.seen.sites]
    for anatomy in masked:
        if any(mask.fill is not None and _judge(mask.fill)[0] for mask in anatomy.masks):
            yield from check(anatomy.site)
    for anatomy in (*xray.sites, *masked):
        if anatomy.leaking is not None:
            mask, weight = anatomy.leaking
            message = f"blocked keys keep up to {weight:.2g} of the weight"
            yield GOTCHA.at(mask, message, expected="0", found=f"{weight:.2g}")
    yield from (_uncovered(weak) for weak in xray.weak_fills)


def _uncovered(weak: WeakFill) -> Finding:
    """A bias of no certain meaning, which hides later keys only while the scores are small."""
    return GOTCHA.at(
        weak.step,
        f"later keys are hidden by {weak.fill:.4g} only; large scores give them {weak.weight:.2g} of the weight",
        severity=Severity.WARNING if weak.fill >= LARGE else Severity.INFO,
        expected="-inf",
        found=f"{weak.fill:.4g}",
    )


def fix(blamed: Blamed) -> Fix | None:
    """The number that blocked scores are filled with; a number that is added or multiplied can be no infinity."""
    candidates = [blamed.assigned_value()]
    if blamed.called in ("masked_fill", "masked_fill_"):
        candidates = [blamed.argument(2, "value")]
    elif blamed.called == "where":
        candidates = [blamed.argument(1, "input"), blamed.argument(2, "other")]
    numbers = [part for part in candidates if part and part.is_number]
    if len(numbers) != 1:
        return None
    return blamed.replacing(numbers[0], 'float("-inf")')
