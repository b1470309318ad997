"""The softmax runs over something other than the keys.

What it does
------------
Finds softmaxes that run along the axis of the queries, of the heads or of the samples, or without a `dim`, where torch
chooses axis 1 of a matrix or of four axes, and axis 0 of three.

Why is this bad
---------------
What a query attends to is a choice among keys, so its weights over the keys must sum to one. Over queries, they sum to
anything: one position may get ten values and another none, and with a causal mask the early positions are drowned by
the later ones, which is a leak. Over heads or samples, each position's share depends on other heads or on whoever else
is in the batch. Shapes and ranges look right in each case, and the loss falls.

The probe measures the axis: it changes one key, one query and one head of the scores and looks along which axis of the
softmax the change stays at one place. Weights that are normalised over the queries on purpose and over the keys
afterwards (slot attention) are left alone. Where a network scores each position (attention pooling), `dim=-1` of scores
(batch, time, 1) runs over one score alone, and every weight is 1.

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

from attn_guard.anatomy import Axis, Stage, StepKind
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.anatomy import Site
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed

GOTCHA = Gotcha(
    code="ATN104",
    name="softmax-axis",
    summary="softmax runs over another axis than the keys",
    fix="softmax over the keys: dim=-1 of scores (batch, heads, queries, keys)",
    explains=("ATN203", "ATN211", "ATN212", "ATN214", "ATN305", "ATN404"),
)


_NAMES = {Axis.BATCH: "the batch", Axis.SINGLE: "one score alone"}


def check(site: Site) -> Iterator[Finding]:
    normalised_again = site.find(StepKind.NORM, Stage.WEIGHTS)
    if site.softmax is not None and site.softmax_over not in (None, Axis.KEYS) and not normalised_again:
        over = _NAMES.get(site.softmax_over, f"the {site.softmax_over}")
        yield GOTCHA.at(site.softmax, f"softmax runs over {over}", expected="over the keys", found=f"over {over}")


def fix(blamed: Blamed) -> Fix | None:
    """The axis that stands in the call; that of a layer stands elsewhere."""
    is_softmax = blamed.called in ("softmax", "softmax_", "log_softmax") and not blamed.is_layer
    return blamed.with_argument(1, "dim", "-1") if is_softmax else None
