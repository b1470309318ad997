"""Attention that drops at random in evaluation mode.

What it does
------------
Finds dropout that stays on after `module.eval()`: `F.scaled_dot_product_attention(..., dropout_p=self.p)`, the same of
a `flash_attn` function, `F.dropout(weights, p)` without `training=`, `nn.Dropout` built inside `forward`.

Why is this bad
---------------
`F.scaled_dot_product_attention` has no notion of a mode: it drops whenever `dropout_p` is above 0. `F.dropout` takes
`training=True` unless it is told otherwise. So every prediction is another one, validation is measured on a crippled
model, and nothing says so. Code that moves from an `nn.Dropout` to the fused function often loses the mode on the way.

A branch that is taken only where the rate is 0 drops nothing, and is left alone.

The linter also reports a rate that the module holds and hands, as `dropout_p`, to a function that it cannot see, beside
a query and a key: only the module knows its mode. It is a remark, since that function may do nothing with the rate.

The probe runs the module in evaluation mode and looks for random numbers on the way from the projections to the output.
Where the configured rate is 0, it looks once more with the rate raised: then the dropout does nothing yet, and the
finding is a warning.

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

from attn_guard.findings import Severity
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN501",
    name="dropout-in-eval",
    summary="dropout stays on in evaluation mode",
    fix="pass self.p if self.training else 0.0 as dropout_p, or training=self.training to F.dropout",
    explains=("ATN212",),
)


def lint(function: Function) -> Iterator[Finding]:
    for fault in function.drops_in_eval:
        yield GOTCHA.at(fault.location, f"dropout of the {fault.text} stays on in evaluation mode")
    for fault in function.rates_handed_on:
        yield GOTCHA.at(
            fault.location,
            "the attention is given its dropout in evaluation mode, too",
            severity=Severity.INFO,
            help="pass self.p if self.training else 0.0 as dropout_p",
        )


def probe(xray: XRay) -> Iterator[Finding]:
    shown = set()
    for found in xray.dropouts:
        shown.add(found.op.place)
        yield GOTCHA.at(
            found.op.location,
            f"dropout of the {found.stage} stays on in evaluation mode",
            expected="the same output at every call",
            found="random numbers",
        )
    for found in xray.modes.evaluation.dropouts:
        if found.raised and found.op.place not in shown:
            yield GOTCHA.at(
                found.op.location,
                f"dropout of the {found.stage} stays on in evaluation mode once its rate is above 0",
                severity=Severity.WARNING,
                expected="the same output at every call",
                found="random numbers",
            )


def fix(blamed: Blamed) -> Fix | None:
    """Asks the module whether it is in training."""
    if not blamed.in_module:
        return None
    if blamed.called in ("dropout", "dropout_", "alpha_dropout") and not blamed.is_layer:
        return blamed.with_argument(2, "training", "self.training")
    at = 4 if blamed.called == "scaled_dot_product_attention" else 99
    rate = blamed.argument(at, "dropout_p") if at == 4 or blamed.called.startswith("flash_attn") else None
    return blamed.replacing(rate, f"{rate.text} if self.training else 0.0") if rate and rate.is_plain else None
