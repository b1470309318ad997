"""The mask is added before the scale is applied, so its fill shrinks with it.

What it does
------------
Finds masks that are put into the scores before these are scaled, where what is left of the fill is not far below every
score, and fixed slopes over the distance (ALiBi) that are added before the scale.

Why is this bad
---------------
The scale is meant for the product of query and key. Applied to the sum, it makes a finite fill smaller by √head_dim: a
fill that was chosen to be just low enough no longer is, and a blocked key keeps weight once the scores are large. The
fused kernels add the mask after the scale, so that the same mask gives another result there.

A fill of -inf or `finfo.min` is as low after the scale as before it, and nothing is said, nor of a bias that is
learned and finds its own size. This one is in preview: fills that are still low enough for the scores a model has today
are a matter of taste, and some models have been trained with slopes that are scaled. In source, the width of a head is
seldom known: the linter takes it to be 16, and how often a fill that it speaks of is too weak has not been counted.

Example
-------
{broken}

Use instead
-----------
{fixed}
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from attn_guard.anatomy import Site, Stage, Step, StepKind
from attn_guard.findings import Detector, Severity
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN223",
    name="mask-scaled",
    summary="mask is applied before the scale, and its fill shrinks with it",
    fix="scale the scores first, then mask them",
    severity=Severity.WARNING,
    preview=(Detector.LINT, Detector.PROBE),
)

# Fills below this are far below every score; those above the other are weak whether they are scaled or not (ATN203).
LOW = -1e4
WEAK = -20.0
NARROW = 16.0


def lint(function: Function) -> Iterator[Finding]:
    """As the probe, for a head of ``NARROW`` features where only source knows how wide it is."""
    for site in function.own_sites:
        for mask in site.find(StepKind.MASK, Stage.SCORES):
            factor = _written_after(site, mask)
            if mask.fill is not None and factor < 1 and mask.fill <= WEAK and mask.fill * factor > LOW:
                yield GOTCHA.at(mask, expected=f"{mask.fill:g}", found="a fraction of it, after the scale")


def _written_after(site: Site, mask: Step) -> float:
    """The product of the factors that follow a mask before the softmax, a root of a size taken for that of
    ``NARROW``."""
    following = site.steps[site.steps.index(mask) :]
    factors = [step.factor for step in following if step.kind is StepKind.SCALE and step.stage is Stage.SCORES]
    return prod(
        factor.value if factor.value is not None else NARROW ** (factor.power or 0.0)
        for factor in factors
        if factor is not None
    )


def probe(xray: XRay) -> Iterator[Finding]:
    for anatomy in xray.sites:
        site = anatomy.site
        for mask in site.find(StepKind.MASK, Stage.SCORES):
            factor = _scaled_by(site, mask)
            if mask.fill is not None and factor < 1 and mask.fill <= WEAK and mask.fill * factor > LOW:
                yield GOTCHA.at(mask, expected=f"{mask.fill:g}", found=f"{mask.fill * factor:.4g} after the scale")
        for bias in anatomy.biases:
            step = next((s for s in site.find(StepKind.BIAS, Stage.SCORES) if s.location == bias.op.location), None)
            if step is not None and bias.falls_with_distance and _scaled_by(site, step) < 1:
                yield GOTCHA.at(
                    step,
                    "fixed slopes over the distance are added before the scale, and shrink with it",
                    help="scale the scores first, then add the slopes",
                    expected="the slopes as they are",
                    found=f"{_scaled_by(site, step):.4g} of them",
                )


def _scaled_by(site: Site, applied: Step) -> float:
    """The product of the factors that follow a mask or a bias before the softmax."""
    following = site.steps[site.steps.index(applied) :]
    factors = [step.factor for step in following if step.kind is StepKind.SCALE and step.stage is Stage.SCORES]
    return prod(factor.value for factor in factors if factor is not None and factor.value is not None)
