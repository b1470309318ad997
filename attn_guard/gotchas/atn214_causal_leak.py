"""The output at a position depends on later inputs.

What it does
------------
Finds modules that are meant to be causal and in which the output at position t changes when an input after t does.

Why is this bad
---------------
A decoder is trained to predict the next token from those before it. If it can see that token, the task is to copy:
the training and validation loss fall faster and further than they should, and generation, where there is no future to
look at, is useless. A loss that is too good is often the only sign.

Often there is a mask, but not on the path that runs: it is built only when a cache is set up, only when there is
none, only together with a padding mask, or `is_causal=True` is left out of one call among several.

In source, a class is taken to be causal by its contract or its name. A triangle drawn for a size that the same function
asserts to be 1 hides nothing, and a class of masks loses the triangle of a subclass where a method such as `to` returns
an object of its own name.

The probe changes one input position at a time and draws which outputs follow. It reports where the future enters. A
module that is called without the mask which its parent would supply is not causal and need not be: this is an error
only where the module declares `@attn_guard.contract(causal=True)`, and a warning where that is inferred from a
triangular mask or an `is_causal` of its own.

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
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN214",
    name="causal-leak",
    summary="output depends on later positions",
    fix="pass is_causal=True, or fill the scores with -inf where the key comes after the query",
    explains=("ATN701",),
)


def lint(function: Function) -> Iterator[Finding]:
    """A class that is causal by contract or by name with attention that nothing masks, a causal mask of one cell, and
    copies of a causal mask that are not causal."""
    declared = function.promises.get("causal") is True
    for mask in function.single_cells:
        message = "the causal mask has one query and one key; broadcast over others, it hides nothing"
        mended = "draw it for as many queries and keys as there are"
        yield GOTCHA.at(mask.location, message, severity=Severity.WARNING, help=mended)
    for copy in function.lossy_copies:
        message = f"{function.name}() of a {copy.text} gives a {function.class_name}, which is not causal"
        yield GOTCHA.at(copy.location, message, severity=Severity.WARNING, help="make the copy with type(self)(...)")
    if function.name != "forward" or not (declared or function.is_called_causal):
        return
    if any(word in name.lower() for name in function.parameters for word in ("mask", "bias", "causal")):
        return
    for site in function.sites:
        if site.causal is False and site.softmax is not None:
            yield GOTCHA.at(
                site.softmax,
                f"{function.class_name} is causal, but no mask hides later positions here",
                severity=Severity.ERROR if declared else Severity.WARNING,
            )


def probe(xray: XRay) -> Iterator[Finding]:
    """Outputs that change with a later input; the place is the first site that looks ahead."""
    leak = xray.leak
    if leak is None or leak.outside:
        return
    output, changed = leak.first
    yield GOTCHA.at(
        leak.place,
        f"output {output} depends on input {changed}, which comes after it",
        severity=Severity.ERROR if xray.promised("causal") else Severity.WARNING,
        expected="no influence of later inputs",
        found=leak.extent,
        leak_map=leak.map,
    )


def fix(blamed: Blamed) -> Fix | None:
    """Unsafe: the queries may be later than the keys, as with a cache."""
    is_fused = blamed.called == "scaled_dot_product_attention"
    return unsafe(blamed.with_argument(5, "is_causal", "True")) if is_fused else None
