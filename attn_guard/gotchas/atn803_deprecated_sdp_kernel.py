"""`torch.backends.cuda.sdp_kernel`, which is deprecated.

What it does
------------
Finds uses of the context manager `torch.backends.cuda.sdp_kernel`, however it is imported, in the functions of a file.
A file that names `sdpa_kernel`, too, keeps the old form for old versions, and is left alone.

Why is this bad
---------------
It is deprecated since torch 2.3 and warns at every use, in favour of `torch.nn.attention.sdpa_kernel`, which names the
kernels that may be chosen. The old form switches kernels on and off by flags, all of which are on unless they are
turned off: `sdp_kernel(enable_flash=True)` allows every kernel, and restricts nothing.

Only source shows this, so it is found by the linter alone.

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
    code="ATN803",
    name="deprecated-sdp-kernel",
    summary="torch.backends.cuda.sdp_kernel is deprecated",
    fix="name the kernels: torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION)",
    severity=Severity.WARNING,
)


def lint(function: Function) -> Iterator[Finding]:
    for fault in function.deprecated_contexts:
        yield GOTCHA.at(fault.location)


def fix(blamed: Blamed) -> Fix | None:
    """The same kernels by name; a switch that is not written as True or False is left alone."""
    kernels = {
        "flash": "FLASH_ATTENTION",
        "mem_efficient": "EFFICIENT_ATTENTION",
        "math": "MATH",
        "cudnn": "CUDNN_ATTENTION",
    }
    switches = {kernel: blamed.argument(99, f"enable_{name}") for name, kernel in kernels.items()}
    given = [switch.text for switch in switches.values() if switch]
    if not blamed.imports("torch") or len(given) != blamed.count or not set(given) <= {"True", "False"}:
        return None
    wanted = [kernel for kernel, switch in switches.items() if switch is None or switch.text == "True"]
    listed = ", ".join(f"torch.nn.attention.SDPBackend.{kernel}" for kernel in wanted)
    return blamed.replacing(blamed.whole, f"torch.nn.attention.sdpa_kernel([{listed}])")
