"""Linear attention without its normaliser, or with one that is not the sum of its weights.

What it does
------------
Finds attention by feature maps, φ(q) (φ(k)ᵀ v) with positive features, whose context is not divided by φ(q) Σ φ(k): by
nothing, by one number for all queries, or, in causal attention by running sums, by a sum over other keys than those
that were read. Whether the weights sum to one is measured: values of one must come out as ones.

Why is this bad
---------------
The weights φ(q)·φ(k) of linear attention (Katharopoulos et al. 2020) take the place of those of a softmax, and become
an average only by the division by their sum, which is another for each query. Without it, the context grows with the
length of the sequence, and a model that was trained on short ones meets numbers it has never seen. Divided by one
number for all queries, some positions count for more than others. Divided by the sum over all keys, a causal query
depends on the future.

It stays silent for a norm of the context in place of the division (RetNet), for features that are softmaxes
themselves (efficient attention), and for features that may be negative.

This one is in preview: designs without a normaliser are common, and not all of them say so.

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

from attn_guard.findings import Detector, Severity
from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN109",
    name="linear-normaliser",
    summary="context of linear attention is not normalised; it grows with the sequence",
    fix="divide by the sum of the weights: phi_q @ phi_k.sum(dim=-2, keepdim=True).mT",
    severity=Severity.WARNING,
    preview=(Detector.PROBE,),
    explains=("ATN212", "ATN214"),
)


def probe(xray: XRay) -> Iterator[Finding]:
    for normaliser in xray.normalisers:
        if not normaliser.is_expected or normaliser.is_replaced or normaliser.is_average:
            continue
        expected = "one divisor for each query"
        if normaliser.division is None:
            yield GOTCHA.at(normaliser.location, expected=expected, found="no division")
        elif normaliser.is_shared:
            message = "context of linear attention is divided by one number for all queries"
            yield GOTCHA.at(normaliser.location, message, expected=expected, found="one for all queries")
        else:
            message = "context of linear attention is divided by something else than the sum of its weights"
            yield GOTCHA.at(normaliser.location, message, expected="weights that sum to one", found="other sums")
