"""Cross attention the wrong way round: the memory asks, and the decoder's stream is asked.

What it does
------------
Finds cross attention whose queries come from the memory and whose keys and values come from the stream that should
read it: `self.cross(memory, x, x)`, or the two inputs in each other's place inside the module.

Why is this bad
---------------
The output has one row per query. It must follow the decoder's length and order, and it must not matter in which order
keys and values come. The other way round it follows the memory: where both lengths are equal, often in tests and toy
tasks, nothing raises, and position t of the target is mixed with position t of the source.

Which input is the memory is known where the module declares `@attn_guard.contract(cross=True)`: then it is the second
one. Otherwise its name must say so plainly (`memory`, `context`, `encoder_hidden_states`; `src` beside `tgt`), and the
finding is a warning. Modules that attend in both directions, and those that take the memory first, are not reported.
The linter follows the arguments of `forward` by name into the projections and into `nn.MultiheadAttention`.

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

from attn_guard.anatomy import Stage, StepKind
from attn_guard.findings import Severity
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN401",
    name="swapped-cross-inputs",
    summary="queries come from the memory, keys and values from the stream that should read it",
    fix="queries from the decoder's stream, keys and values from the memory",
    explains=("ATN211", "ATN212", "ATN214", "ATN222", "ATN402"),
)


def lint(function: Function) -> Iterator[Finding]:
    """Queries made of the memory, and keys of the stream that should read it."""
    for place in function.asking_memories:
        yield GOTCHA.at(place, severity=_severity(function.promises.get("cross") is True))


def _severity(declared: bool) -> Severity:
    return Severity.ERROR if declared else Severity.WARNING


def probe(xray: XRay) -> Iterator[Finding]:
    cross = xray.cross
    if cross is None or any(cross.is_right(anatomy) for anatomy in xray.sites):
        return
    for anatomy in xray.sites:
        if cross.is_swapped(anatomy):
            projection = next(iter(anatomy.site.find(StepKind.PROJECTION, Stage.QUERY)), None)
            yield GOTCHA.at(
                projection or anatomy.trace.scores.location,
                severity=_severity(cross.declared),
                expected=f"queries from {cross.own}, keys from {cross.memory}",
                found=f"queries from {cross.memory}, keys from {cross.own}",
            )
