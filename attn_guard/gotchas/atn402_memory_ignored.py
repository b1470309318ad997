"""A memory that has no influence: self-attention where cross attention was meant.

What it does
------------
Finds modules that are given a memory, and whose output stays the same, bit for bit, whatever the memory holds.

Why is this bad
---------------
A decoder that never looks at its source is a language model: it writes fluent text about nothing. Training shows no
error, and the loss falls to that of the target's own statistics. It takes one wrong argument, `self.cross(x, x, x)`, or
a key projection that reads the stream in place of the memory.

It is reported where the module declares `@attn_guard.contract(cross=True)`, and as a warning where `forward` cannot be
called without an argument named plainly (`memory`, `context`, `encoder_hidden_states`; `src` beside `tgt`). Optional
arguments that a configuration turns off, as in many models of transformers, are left alone. The linter reports a memory
that has no default and is never read, in a decoder or beside a layer that is called a cross attention.

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

from attn_guard.anatomy import Stage, StepKind
from attn_guard.findings import Severity
from attn_guard.gotchas import Gotcha, unsafe

if TYPE_CHECKING:
    from attn_guard.findings import Finding, Fix
    from attn_guard.lint.fixes import Blamed
    from attn_guard.lint.function import Function
    from attn_guard.probe.xray import XRay

GOTCHA = Gotcha(
    code="ATN402",
    name="memory-ignored",
    summary="the memory has no influence on the output",
    fix="make the keys and values from the memory",
    explains=("ATN212", "ATN214"),
)


def lint(function: Function) -> Iterator[Finding]:
    """A memory that must be given and is never read."""
    place = function.unread_memory
    if place is not None:
        declared = function.promises.get("cross") is True
        yield GOTCHA.at(
            place,
            f"{function.memory} is never read; the keys come from elsewhere",
            severity=Severity.ERROR if declared else Severity.WARNING,
        )


def probe(xray: XRay) -> Iterator[Finding]:
    cross = xray.cross
    if xray.tape.failure is not None or cross is None or not xray.sites:
        return
    if not (cross.declared or cross.required) or cross.memory_matters:
        return
    site = xray.sites[-1].site
    key = next(iter(site.find(StepKind.PROJECTION, Stage.KEY)), None)
    yield GOTCHA.at(
        key or xray.sites[-1].trace.scores.location,
        f"{cross.memory} has no influence on the output; the keys come from {cross.own}",
        severity=Severity.ERROR if cross.declared else Severity.WARNING,
        expected=f"an output that changes with {cross.memory}",
        found="the same output, bit for bit",
    )


def fix(blamed: Blamed) -> Fix | None:
    """Asks the memory where keys and values are the query itself. Unsafe: it may be the argument that is left over."""
    query, *others = (blamed.argument(index, name) for index, name in enumerate(("query", "key", "value")))
    memory = re.match(r"(\w+) is never read", blamed.finding.message)
    if memory is None or query is None or not blamed.is_layer:
        return None
    if any(other is None or other.text != query.text for other in others):
        return None
    return unsafe(blamed.all(*(blamed.replacing(other, memory[1]) for other in others)))
