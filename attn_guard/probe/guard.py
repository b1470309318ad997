"""A drop-in wrapper that probes a module at its first call of each kind.

The wrapped module's outputs are bit-identical to those of the module itself: the probe runs after the call, on
copies of the arguments that were made before it.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils._pytree import tree_leaves

from attn_guard.errors import UsageError
from attn_guard.findings import AttentionFault, Report
from attn_guard.probe.check import check
from attn_guard.probe.copies import NotCopiedError, copied

OnFinding = Literal["warn", "raise", "collect"]


class AttentionWarning(UserWarning):
    """What `guard` warns with."""


class Guarded(nn.Module):
    """The wrapper that `guard` makes. ``reports`` holds a report for each kind of call seen so far."""

    def __init__(self, module: nn.Module, on_finding: OnFinding, promises: dict[str, Any]) -> None:
        super().__init__()
        self.module = module
        self.reports: list[Report] = []
        self._on_finding = on_finding
        self._promises = promises
        self._seen: set[Hashable] = set()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        kind = _kind(args, kwargs, self.module.training)
        if kind in self._seen or torch.compiler.is_compiling() or _get_current_dispatch_mode() is not None:
            return self.module(*args, **kwargs)
        self._seen.add(kind)
        try:
            call = copied((args, kwargs))
        except NotCopiedError:
            return self.module(*args, **kwargs)
        output = self.module(*args, **kwargs)
        self._probe(*call)
        return output

    def _probe(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        report = check(self.module, args, kwargs, **self._promises)
        self.reports.append(report)
        if report.ok or self._on_finding == "collect":
            return
        if self._on_finding == "raise":
            raise AttentionFault(report)
        warnings.warn(f"attn-guard\n{report}", AttentionWarning, stacklevel=5)

    def __getattr__(self, name: str) -> Any:
        """Attributes of the module show through, so that the wrapper can stand in its place."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


def guard(module: nn.Module, *, on_finding: OnFinding = "warn", **promises: Any) -> Guarded:
    """Wrap a module so that the first call of each kind (shapes, dtypes, mode) is probed.

    ``on_finding``: "warn" issues an `AttentionWarning`, "raise" raises `AttentionFault`, "collect" only keeps the
    reports in ``guarded.reports``. The promises are those of `attn_guard.check`. A call with inputs that cannot be
    copied
    (fake or meta tensors, subclasses) is passed on without a probe. Raises `UsageError` for another ``on_finding``
    or for no module.
    """
    if not isinstance(module, nn.Module):
        raise UsageError(f"guard() takes a torch.nn.Module, got {type(module).__name__}")
    if on_finding not in ("warn", "raise", "collect"):
        raise UsageError(f"on_finding={on_finding!r}: expected 'warn', 'raise' or 'collect'")
    return Guarded(module, on_finding, promises)


def _kind(args: tuple[Any, ...], kwargs: dict[str, Any], training: bool) -> Hashable:
    """What tells one kind of call from another: which tensors, of which shapes and dtypes, and the mode."""
    parts = [
        (tuple(leaf.shape), leaf.dtype, leaf.device) if isinstance(leaf, Tensor) else type(leaf)
        for leaf in tree_leaves((args, kwargs))
    ]
    return (tuple(parts), tuple(sorted(kwargs)), training)
