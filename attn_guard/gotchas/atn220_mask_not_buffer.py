"""A mask kept as a plain attribute, which stays behind when its module moves.

What it does
------------
Finds causal masks that the constructor of a module makes with torch and keeps as a plain attribute, where no method
that reads the attribute takes it to a device.

Why is this bad
---------------
`module.to(device)`, `.half()` and `.double()` move and convert parameters and buffers; a tensor that is a plain
attribute stays where it was made. On a GPU the first call raises, for a mask on the CPU meets scores that are
elsewhere.
A mask that is added keeps its dtype as well: half-precision scores become float32, and the product with the value
raises. `nn.DataParallel` and sharded checkpoints do not know of it either.

A buffer with `persistent=False` moves along and leaves the checkpoint as it was. Only source shows this: by the time a
module runs, its mask is where its scores are. Masks that are given a device, or are moved where they are read, are left
alone.

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

GOTCHA = Gotcha(
    code="ATN220",
    name="mask-not-buffer",
    summary="mask is a plain attribute; it stays behind when the module moves to another device or dtype",
    fix='keep it as a buffer: self.register_buffer("mask", mask, persistent=False)',
    severity=Severity.WARNING,
)


def lint(function: Function) -> Iterator[Finding]:
    for mask in function.plain_masks:
        fix = f'keep it as a buffer: self.register_buffer("{mask.text}", ..., persistent=False)'
        yield GOTCHA.at(mask.location, help=fix)


def fix(blamed: Blamed) -> Fix | None:
    """A buffer that is not saved, so that checkpoints stay as they are."""
    return blamed.registered()
