"""attn-guard finds the silent mistakes in attention code.

``import attn_guard`` loads neither torch nor libcst: what needs them is imported when it is first used. `contract` and
`lint` are also the names of modules, so these two light functions are bound here at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from attn_guard.contract import Contract, allow, contract
from attn_guard.lint import lint

if TYPE_CHECKING:
    from attn_guard import reference as reference
    from attn_guard import strategies as strategies
    from attn_guard.findings import AttentionFault as AttentionFault
    from attn_guard.findings import Finding as Finding
    from attn_guard.findings import Report as Report
    from attn_guard.findings import Severity as Severity
    from attn_guard.probe.check import assert_sound as assert_sound
    from attn_guard.probe.check import check as check
    from attn_guard.probe.comparison import Comparison as Comparison
    from attn_guard.probe.comparison import compare as compare
    from attn_guard.probe.guard import guard as guard
    from attn_guard.probe.xray import xray as xray

__version__ = "0.1.0"

_HOMES = {
    "AttentionFault": "attn_guard.findings",
    "Comparison": "attn_guard.probe.comparison",
    "Finding": "attn_guard.findings",
    "Report": "attn_guard.findings",
    "Severity": "attn_guard.findings",
    "assert_sound": "attn_guard.probe.check",
    "check": "attn_guard.probe.check",
    "compare": "attn_guard.probe.comparison",
    "guard": "attn_guard.probe.guard",
    "reference": "attn_guard",
    "strategies": "attn_guard",
    "xray": "attn_guard.probe.xray",
}

__all__ = [
    "AttentionFault",
    "Comparison",
    "Contract",
    "Finding",
    "Report",
    "Severity",
    "allow",
    "assert_sound",
    "check",
    "compare",
    "contract",
    "guard",
    "lint",
    "reference",
    "strategies",
    "xray",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attn_guard' has no attribute {name!r}")
    home = _HOMES[name]
    if home == __name__:
        return importlib.import_module(f"{home}.{name}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
