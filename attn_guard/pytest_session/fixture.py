"""The fixture ``attn_guard``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch import nn

    from attn_guard.findings import Report


class AttnGuard:
    """Checks modules inside a test."""

    def check(self, module: nn.Module, args: Any = None, kwargs: Any = None, **promises: Any) -> Report:
        """Fails the test with the report if something is found; see `attn_guard.check` for the arguments."""
        __tracebackhide__ = True
        from attn_guard.probe.check import check

        report = check(module, args, kwargs, **promises)
        if not report.ok:
            pytest.fail(str(report), pytrace=False)
        return report
