"""The twin examples as files and as modules, without help from attn-guard."""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(path.stem for path in (EXAMPLES / "broken").glob("atn*.py"))

_MARKER = re.compile(r"  # <- (?P<code>ATN\d{3})$")


def source(kind: str, name: str) -> Path:
    """The file of a twin; kind is "broken" or "fixed"."""
    return EXAMPLES / kind / f"{name}.py"


def build(kind: str, name: str) -> nn.Module:
    """The module of a twin, in eval mode."""
    module: nn.Module = namespace(kind, name)["build"]()
    return module.eval()


def inputs(kind: str, name: str) -> tuple[Any, Any]:
    """The args and kwargs that a twin asks to be called with; (None, None) where it leaves that to its reader."""
    own = namespace(kind, name).get("inputs")
    return (None, None) if own is None else own()


def namespace(kind: str, name: str) -> Mapping[str, Any]:
    """What the file of a twin defines."""
    return runpy.run_path(str(source(kind, name)))


def marked_lines(path: Path) -> dict[int, str]:
    """Line → code, for the lines that carry the comment ``# <- ATNxxx``."""
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if marker := _MARKER.search(line):
            found[number] = marker["code"]
    return found
