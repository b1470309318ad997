"""What the marker ``attn_guard(causal=True, ignore=["ATN203"], reason="...")`` says about the modules of a test."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from attn_guard.contract import Contract
from attn_guard.errors import UsageError

if TYPE_CHECKING:
    import pytest

_OPTIONS = ("select", "ignore")


def promises(item: pytest.Item) -> dict[str, Any]:
    """The arguments for `check`. Of several markers the nearest counts. Raises `UsageError` for an unknown promise."""
    said: dict[str, Any] = {}
    for marker in item.iter_markers("attn_guard"):
        for name, value in marker.kwargs.items():
            said.setdefault(name, value)
        if marker.args:
            raise UsageError(f"{item.nodeid}: attn_guard({marker.args[0]!r}): give promises by name")
    said.pop("reason", None)
    known = [*(field.name for field in fields(Contract)), *_OPTIONS]
    for name in said:
        if name not in known:
            raise UsageError(f"{item.nodeid}: attn_guard({name}=...): no such promise; there are {', '.join(known)}")
    Contract(**{name: value for name, value in said.items() if name not in _OPTIONS})
    return said
