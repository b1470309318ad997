"""Real tokens depend on padded ones.

What it does
------------
Finds modules that promise to leave padding out and do not: the mask argument is accepted and never reaches the
scores, or reaches only some of them.

Why is this bad
---------------
The output for a sentence then depends on what it was batched with. The padding takes part of every row's weight, a
short sentence beside a long one loses most; at inference with a batch of one the model sees another input than in
training. Since padding is often a constant vector, the loss falls all the same.

The probe replaces the padded positions by other values and compares the real positions bit for bit. It pads on the
left and with holes inside, too: under a causal mask no real token ever sees the padding on its right, which hides the
mistake. Outputs at the padded positions themselves are undefined and left out.

It stays silent for modules that promise nothing about a mask: an encoder without one is no mistake by itself. In
source, neither is a layer that reads no mask at all, and takes them only as torch's stacks of layers hand them over.
In source, `nn.Embedding(..., padding_idx=...)` says that there is padding: what it looked up and a built-in layer
gets without any mask, causal ones included, is a warning.

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

from attn_guard.findings import Location, Severity
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN212",
    name="padding-leak",
    summary="real tokens depend on padded ones",
    fix="pass the padding mask on to the attention call, or fill the scores of padded keys with -inf",
)


def lint(function: Function) -> Iterator[Finding]:
    """A padding mask that a function with attention in it takes and never reads, or padded ids without any mask."""
    for name, place in function.unread_padding_masks:
        for site in function.unmasked_sites:
            if site.softmax is not None:
                yield GOTCHA.at(
                    site.softmax,
                    f"{name} is never read; padded keys get weight",
                    severity=Severity.ERROR if function.declares_mask(name) else Severity.WARNING,
                    related=(place, "the mask that is not used"),
                )
    for call in function.unmasked_padding:
        message = "the input holds padding, and no mask is given; padded keys get weight"
        yield GOTCHA.at(call.location, message, severity=Severity.WARNING, related=call.related)


def probe(xray: XRay) -> Iterator[Finding]:
    """Pads that come in by a convolution or a pooling are held against a module only where it promises otherwise."""
    from attn_guard.probe.admission import lets_in

    for run in xray.padded:
        declared = xray.promised(run.name)
        if run.pads_matter and (declared or lets_in(run.sites, run.keep, batch_first=run.call.batch_first)):
            softmax = next((anatomy.site.softmax for anatomy in run.sites if anatomy.blocked is None), None)
            place = softmax or next((anatomy.site.softmax for anatomy in run.sites), None)
            yield GOTCHA.at(
                place or Location("<probe>", 0),
                f"real tokens change with the content of tokens that {run.name} marks as padding",
                severity=Severity.ERROR if declared else Severity.WARNING,
                expected="no change",
                found="a change at real tokens, with padding on the right, on the left and inside",
            )


def fix(blamed: Blamed) -> Fix | None:
    """Hands the mask on under its own name to a layer that knows it. Unsafe: True may mean the opposite to its
    caller."""
    mask = blamed.related
    name = mask.text if mask else ""
    is_known = name in ("key_padding_mask", "src_key_padding_mask") and blamed.is_layer
    return unsafe(blamed.with_argument(99, name, name)) if is_known else None
