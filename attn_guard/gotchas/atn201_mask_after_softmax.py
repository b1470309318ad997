"""A mask applied to the weights, after the softmax, and none to the scores before it.

What it does
------------
Finds masks that are applied to attention weights (`masked_fill`, `where`, a product with a 0/1 mask) at sites where
no mask is applied to the scores.

Why is this bad
---------------
The softmax has already shared the weight of 1 among all keys, blocked ones included. Zeroing some of them afterwards
leaves rows that sum to less than 1, and each weight that is left still depends on the blocked keys through the
denominator: with a causal mask, the future leaks.

Zeroing after the softmax as well as masking before it is fine, and so is zeroing whole rows. Masking and then dividing
by the new row sum gives the right values as long as nothing underflows: where a blocked key has by far the largest
score, the weights of the others round to 0, and what is divided is 0 by 0. The gradient passes through the blocked keys
as well. That form is a warning.

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
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.spans import Part
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN201",
    name="mask-after-softmax",
    summary="mask applied after the softmax; rows no longer sum to 1",
    fix="fill the scores with -inf where the mask blocks, before the softmax",
    explains=("ATN203", "ATN212", "ATN214"),
)


def check(site: Site) -> Iterator[Finding]:
    late = site.find(StepKind.MASK, Stage.WEIGHTS)
    if site.softmax is None or not late or site.before_softmax(StepKind.MASK):
        return
    normalised = (site.softmax, "normalised here")
    if _renormalised(site, late[-1]):
        message = "mask applied after the softmax, and the rows normalised once more"
        yield GOTCHA.at(late[0], message, severity=Severity.WARNING, related=normalised)
    else:
        name = late[0].text if late[0].text.endswith("_mask") else "mask"  # which may have another name on this line
        message = f"{name} applied after the softmax; rows no longer sum to 1"
        yield GOTCHA.at(late[0], message, related=normalised, consequences=("ATN212", "ATN214"))


def probe(xray: XRay) -> Iterator[Finding]:
    """A padding mask on the weights only, also where another mask is on the scores."""
    from attn_guard.probe.misplaced import on_weights

    for run in xray.padded:
        for site, mask in on_weights(run.delivery) if run.is_lost else ():
            related = (site.softmax, "normalised here") if site.softmax else None
            yield GOTCHA.at(mask, related=related, consequences=("ATN212",))


def _renormalised(site: Site, mask: Step) -> bool:
    following = site.steps[site.steps.index(mask) + 1 :]
    return any(step.kind is StepKind.NORM and step.stage is Stage.WEIGHTS and step.used for step in following)


def fix(blamed: Blamed) -> Fix | None:
    """Masks the scores as well: what is masked on both sides is right. Unsafe: a row that is blocked whole becomes
    NaN."""
    softmax, blocked = blamed.related, _blocked(blamed)
    if softmax is None or softmax.region is not blamed.region or "softmax" not in softmax.called or blocked is None:
        return None
    scores, (masked, part, condition) = softmax.argument(0, "input"), blocked
    is_same = masked.node is softmax.node or (masked.is_name and masked.text == softmax.target)
    if scores is None or not is_same or not softmax.is_known_before(part):
        return None
    return unsafe(softmax.replacing(scores, f'{scores.bracketed}.masked_fill({condition}, float("-inf"))'))


def _blocked(blamed: Blamed) -> tuple[Part, Part, str] | None:
    """What is masked, the part that says where, and that as a condition: ``weights.masked_fill(mask, 0)`` or
    ``weights * keep``."""
    if blamed.called in ("masked_fill", "masked_fill_"):
        masked, condition = blamed.argument(0, "input"), blamed.argument(1, "mask")
        return (masked, condition, condition.text) if masked and condition else None
    weights, sign, keep = blamed.sides or (None, "", None)
    is_mask = sign == "*" and weights and keep and keep.is_name and not weights.is_number
    return (weights, keep, f"{keep.text} == 0") if is_mask and weights and keep else None
