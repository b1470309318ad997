"""The future enters a causal model outside its attention.

What it does
------------
Finds modules that are meant to be causal, in which every attention looks back only and the output at position t changes
all the same when an input after t does. Names the line at which that happens first.

Why is this bad
---------------
A causal mask guards the attention and nothing else. A norm over time (`F.layer_norm(x, x.shape[1:])`, a batch norm
over (batch, time)), a convolution with symmetric padding, a shift in the wrong direction, a mean over the sequence or
over the token's own block carry the future past it. The effect is that of a missing mask: a loss that is too
good, and useless samples.

In source, two forms are read: `F.layer_norm` over time and features in a class that is causal by its contract or its
name, and a one-dimensional convolution over time with as much padding on either side, which a model uses beside
convolutions that are causal by their name.

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
    from attn_guard.findings import Finding
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN405",
    name="leak-outside-attention",
    summary="the future enters a causal model outside its attention",
    fix="normalise over features only, pad convolutions on the left, and shift towards later positions",
    explains=("ATN212",),
    explained_by=("ATN3", "ATN404"),
)


def lint(function: Function) -> Iterator[Finding]:
    """A norm over time in a class that is causal by contract or by name, and convolutions that see later steps."""
    declared = function.promises.get("causal") is True
    for norm in function.norms_over_time:
        yield GOTCHA.at(
            norm.location,
            f"the norm runs over time as well, and {function.class_name} is causal",
            severity=Severity.ERROR if declared else Severity.WARNING,
        )
    for convolution in function.convolutions_ahead:
        message = f"the convolution over time is padded on both sides, and {convolution.text} is causal besides"
        yield GOTCHA.at(convolution.location, message, severity=Severity.WARNING)


def probe(xray: XRay) -> Iterator[Finding]:
    leak = xray.leak
    if leak is None or not leak.outside:
        return
    output, changed = leak.first
    yield GOTCHA.at(
        leak.place,
        f"output {output} depends on input {changed}, which comes after it, though every attention looks back only",
        severity=Severity.ERROR if xray.promised("causal") else Severity.WARNING,
        expected="no influence of later inputs",
        found=leak.extent,
        notes=("the future enters here",),
        leak_map=leak.map,
    )
