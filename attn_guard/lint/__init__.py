"""The lint reader: attention code → sites, from source. It never imports torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attn_guard.findings import Report

__all__ = ["lint"]


def lint(
    paths: str | Path | Iterable[str | Path],
    *,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    preview: bool = False,
) -> Report:
    """Read source files (folders are searched for ``*.py``) and report the mistakes in their attention code.

    Raises `attn_guard.errors.UsageError` for a path that does not exist or an unknown code. A file that does not
    parse is a finding (ATN900); the rest of the run goes on.
    """
    from attn_guard.lint.run import lint_paths

    chosen = [paths] if isinstance(paths, str | Path) else list(paths)
    return lint_paths([Path(path) for path in chosen], select=select, ignore=ignore, preview=preview)
