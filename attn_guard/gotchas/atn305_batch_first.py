"""Attention that runs along the batch: samples attend to each other.

What it does
------------
Finds attention in which the keys of a query are the same position of the other samples, as in a layer built with
`batch_first=False`, the default of torch, and given (batch, time, d_model).

Why is this bad
---------------
`nn.MultiheadAttention`, `nn.TransformerEncoderLayer` and their kin take (time, batch, d_model) unless they are told
otherwise. Given (batch, time, d_model) they swap the roles: every sentence looks at the other sentences of its batch,
position by position, and no token ever sees another of its own sentence. The result has the right shape. It changes
with what a sample is batched with, and with a batch of one the layer does nothing that mixes tokens.

A layer cannot know which axis is the batch. It is an error where the contract says `batch_first=True`, and a warning
where the module shows it: positions are added along the other axis, or that is pooled, another layer has
`batch_first=True`, token ids come in. Without any of these it is a remark; where positions are added along the first
axis, or keys are masked, nothing is said. `batch_first=False` declares (time, batch, d_model). Where the batch was
folded into an axis with another, as the rows of tables or the windows of images are, a layer that takes time first runs
over both, and it is a warning.

The linter looks at the layers of torch that are built without `batch_first=True`, and reports them where the source
shows that the batch comes first: in the names of a shape (`b, t, d = x.shape`), positions that are added along the
second axis,
what a convolution gives after `flatten(2).transpose(1, 2)`, a result of which `[:, 0]` or `.mean(dim=1)` is taken, a
loop that hands the batches of a `DataLoader` to the model as they are. It reports a layer that runs along an axis into
which all others in front were folded (`x.view(-1, *x.shape[-2:])`), too.

Example
-------
{broken}

Use instead
-----------
{fixed}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attn_guard.findings import Severity
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN305",
    name="batch-first",
    summary="attention runs along the batch; samples attend to each other",
    fix="build the layer with batch_first=True, or transpose(0, 1) on the way in and out",
    explains=("ATN212", "ATN214", "ATN404", "ATN405"),
)


def lint(function: Function) -> Iterator[Finding]:
    """A layer of torch that takes time first, in a flow that shows otherwise."""
    severity = Severity.ERROR if function.promises.get("batch_first") is True else Severity.WARNING
    if function.promises.get("batch_first") is not False:
        for fault in function.batch_attention:
            notes = (fault.text,) if fault.text else ()
            yield GOTCHA.at(fault.location, severity=severity, related=fault.related, notes=notes)


def probe(xray: XRay) -> Iterator[Finding]:
    yield from _refused_mask(xray)
    batches = xray.batches
    declared = xray.promised("batch_first")
    for anatomy in batches.folded:
        yield GOTCHA.at(
            anatomy.site.scores or anatomy.trace.scores.location,
            severity=Severity.ERROR if declared else Severity.WARNING,
            expected="keys of the query's own sample",
            found="keys of every sample, several of each",
        )
    if not batches.over_batch or (batches.denied and not declared):
        return
    severity = Severity.ERROR if declared else Severity.WARNING if batches.evidence else Severity.INFO
    evidence = "" if declared else batches.evidence
    for anatomy in batches.over_batch:
        if anatomy.site.scores is not None:
            yield GOTCHA.at(
                anatomy.site.scores,
                "" if severity is not Severity.INFO else "attention runs along the first axis, which may be the batch",
                severity=severity,
                expected="keys of the query's own sample",
                found="keys of every sample, at the query's own position",
                notes=(evidence,) if evidence else (),
            )


# What torch says about a mask over time where it takes (batch, time) for (time, batch): its sizes are those of the
# input's first two axes in the wrong order.
_REFUSALS = (
    r"attn_mask is torch.Size\(\[(?P<time>\d+), (?P=time)\]\), but should be \((?P<batch>\d+), (?P=batch)\)",
    r"key_padding_mask shape of \((?P<time>\d+), (?P<batch>\d+)\), but got torch.Size\(\[(?P=batch), (?P=time)\]\)",
    r"key_padded_mask.shape\[0\] to be (?P<time>\d+), but got (?P<batch>\d+)",
)


def _refused_mask(xray: XRay) -> Iterator[Finding]:
    """A mask over time that a layer refuses since it takes the batch for time."""
    refused = next((found for text in _REFUSALS if (found := re.search(text, str(xray.tape.failure)))), None)
    inputs = [xray.tape.values[value].shape[:2] for value in xray.tape.inputs().values()]
    if refused is not None and (int(refused["batch"]), int(refused["time"])) in inputs:
        yield GOTCHA.at(
            xray.tape.failed_at,
            "the layer takes the batch for time, and refuses a mask over time",
            severity=Severity.ERROR if xray.promised("batch_first") else Severity.WARNING,
            expected=f"{refused['time']} positions in {refused['batch']} samples",
            found=f"{refused['batch']} positions in {refused['time']} samples",
        )


def fix(blamed: Blamed) -> Fix | None:
    """Says so where the layer is made. Unsafe: the layer may be called elsewhere with time first."""
    made = blamed.made
    return unsafe(made.with_argument(99, "batch_first", "True")) if made and "batch" not in made.text else None
