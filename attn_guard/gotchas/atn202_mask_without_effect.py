"""A mask whose result nobody uses.

What it does
------------
Finds masked scores or weights that are computed and thrown away: `scores.masked_fill(...)` as a statement of its own,
a result bound to a name that is never read, or scores that are masked only after the softmax has read them.

Why is this bad
---------------
`masked_fill`, `where` and `*` return a new tensor and leave the one they are called on as it was; only the forms with
an underscore (`masked_fill_`) write in place. A dropped result means that every query sees every key: the future in a
decoder, the padding in a batch. Shapes, speed and the training curve look as they should, since a leak makes the task
easier.

Where another mask of the same site does take effect, the dropped one may be dead code, and this is only a remark. Do
not revive such a statement without a look at what its mask means: it may be the inverse of what is wanted.

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
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN202",
    name="mask-without-effect",
    summary="result of the mask is thrown away; no key is blocked",
    fix="keep the result: scores = scores.masked_fill(...)",
    explains=("ATN203", "ATN212", "ATN214"),
)


def check(site: Site) -> Iterator[Finding]:
    effective = next(iter(site.find(StepKind.MASK)), None)
    for mask in site.dropped(StepKind.MASK):
        if effective:
            yield GOTCHA.at(
                mask,
                "result of this mask is unused",
                severity=Severity.INFO,
                help="delete the statement, if the other mask blocks all that it should",
                related=(effective, "the mask that takes effect"),
            )
        else:
            yield _without_effect(site, mask)


def lint(function: Function) -> Iterator[Finding]:
    """A masked copy that nobody keeps, of a tensor that could not be traced to a site."""
    for mask in function.stray_masks:
        yield GOTCHA.at(
            mask.location, "result of the mask is thrown away", help="keep the result: x = x.masked_fill(...)"
        )


def probe(xray: XRay) -> Iterator[Finding]:
    """A padding mask without effect, also where another mask has one."""
    from attn_guard.probe.misplaced import unread, unread_join

    for run in xray.padded:
        if not run.is_lost:
            continue
        dropped, join = list(unread(run.delivery)), unread_join(run.delivery)
        yield from (_without_effect(site, mask) for site, mask in dropped)
        if join is not None and not dropped:
            message = f"nothing reads what {run.name} is joined into; no key is blocked"
            yield GOTCHA.at(join.location, message, help="use the joined mask", consequences=("ATN212",))


def _without_effect(site: Site, mask: Step) -> Finding:
    softmax = site.softmax
    consequences = ("ATN212", "ATN214")
    if softmax and mask.stage is Stage.SCORES and _below(mask, softmax):
        return GOTCHA.at(
            mask,
            "scores are masked after the softmax has read them; no key is blocked",
            help="move the mask before the softmax",
            related=(softmax, "softmax over the unmasked scores"),
            consequences=consequences,
        )
    fix = "mask the scores before the softmax, and keep the result" if mask.stage is Stage.WEIGHTS else ""
    return GOTCHA.at(mask, help=fix, consequences=consequences)


def _below(step: Step, other: Step) -> bool:
    return step.location.path == other.location.path and step.location.line > other.location.line


def fix(blamed: Blamed) -> Fix | None:
    """Keeps the result. Unsafe: where the statement has never had an effect, nobody knows what it would do."""
    masked = blamed.argument(0, "input")
    has_effect_there = blamed.finding.fails and not blamed.finding.related
    if not has_effect_there or blamed.called != "masked_fill" or masked is None or not masked.is_name:
        return None
    return unsafe(blamed.assigned_to(masked.text))
