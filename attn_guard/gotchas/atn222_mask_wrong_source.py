"""A mask built from the wrong tensor.

What it does
------------
Finds attention over the positions of one input whose mask is built from another: the target's padding over the source,
the lengths of the queries over the keys.

Why is this bad
---------------
With source and target of one length nothing raises. The padding of the source stays visible, and real tokens of the
source are hidden where the target happens to be shorter. With different lengths the same line raises, so that it may
come to light only in production, or be silenced there by padding both to one length.

The probe follows each mask back to the inputs that it is built from, and the keys likewise. Arguments belong to the
input whose name begins alike: `src_lengths` and `src_key_padding_mask` speak of `src`. A mask that knows both is fine.

In source, the masks of `nn.MultiheadAttention`, `nn.TransformerDecoder` and `nn.Transformer` are followed back through
one function. Also there, ids of the target that are compared with the padding id of the source are told.

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
    code="ATN222",
    name="mask-wrong-source",
    summary="mask is built from another input than the keys it hides",
    fix="build the mask from the input that keys and values come from",
    explains=("ATN205", "ATN211", "ATN212"),
)


def lint(function: Function) -> Iterator[Finding]:
    for mask in function.foreign_masks:
        yield GOTCHA.at(mask.location, mask.text, severity=Severity.WARNING, help=mask.help)


def probe(xray: XRay) -> Iterator[Finding]:
    for mask in xray.handed.foreign:
        yield GOTCHA.at(
            mask.op.location,
            f"keys come from {mask.keys}, their mask is built from {mask.built_from}",
            expected=f"a mask built from {mask.keys}",
            found=f"one built from {mask.built_from}",
        )
