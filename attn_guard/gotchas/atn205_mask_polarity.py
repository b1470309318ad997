"""A mask that is upside down: it blocks what it should keep.

What it does
------------
Finds masks that reach an attention call whose convention is the opposite of theirs. What True (or 1) means depends on
who is asked:

- `F.scaled_dot_product_attention(attn_mask=...)` and the `attention_mask` of Hugging Face models: True = attend;
- `nn.MultiheadAttention` and `nn.Transformer*` (`attn_mask`, `key_padding_mask`, `src_key_padding_mask`): True =
  ignore.

A mask made by `ids == pad` or `triu(1)` says "ignore", one made by `ids != pad` or `tril()` says "attend".

Why is this bad
---------------
Both conventions take a boolean tensor of the same shape, so nothing raises. With a padding mask upside down, no real
token has any influence on another, and what each of them gets is a mixture of padding; with a causal mask upside down,
each position sees only its future. The mistake comes in when code moves from `nn.MultiheadAttention` to
`F.scaled_dot_product_attention`.

The probe changes one position at a time: a real token without influence on others beside a padded one with influence is
the evidence. What True means in an argument of a module of your own is declared by its contract:
`@attn_guard.contract(masks={"key_padding_mask": "ignore"})`.

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

from attn_guard.gotchas import Gotcha

if TYPE_CHECKING:
    from attn_guard.findings import Finding
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN205",
    name="mask-polarity",
    summary="mask is upside down: it blocks what should be seen and keeps what should be hidden",
    fix="invert the mask: ~mask",
)


def probe(xray: XRay) -> Iterator[Finding]:
    yield from ()
