"""Dropout that an attention module keeps and never applies.

What it does
------------
Finds an `nn.Dropout`, or a dropout rate, that the constructor of an attention module keeps in an attribute which no
method reads: not in its class, not in a base or a derived class in the same file, and not from outside through another
name in the file.

Why is this bad
---------------
The module takes a rate, shows the layer when it is printed, and trains without dropout whatever the rate is. Nothing
fails: the model overfits a little more than it should, and a search over the rate finds that it does not matter. It
happens where attention is rewritten, most of all for `F.scaled_dot_product_attention`, and the line that applied the
layer goes with the old code.

It is in preview: the attribute may be read in another file. Nothing is said of a class that inherits from another file,
hands itself on, or looks attributes up by name; nor of a rate that the constructor also puts to use.

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
    from attn_guard.lint.function import Function

GOTCHA = Gotcha(
    code="ATN504",
    name="dropout-unused",
    summary="dropout is kept and never applied",
    fix="apply it, to the weights before they meet the value; or take it out",
    severity=Severity.WARNING,
    preview=(Detector.LINT,),
)


def lint(function: Function) -> Iterator[Finding]:
    for fault in function.idle_dropouts:
        yield GOTCHA.at(fault.location, f"nothing reads self.{fault.text}, so it drops nothing")
