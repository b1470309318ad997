"""Which line of the user's code an operation belongs to."""

from __future__ import annotations

import os
import sys
from functools import cache
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from attn_guard.findings import Location


class Place(NamedTuple):
    """Where in the user's code an operation was called: a code object and an instruction in it."""

    code: CodeType
    instruction: int


# Packages that only carry out what the user's line asks for; the line that called them is the one to show.
PLUMBING = ("torch", "einops", "opt_einsum", "jaxtyping", "beartype", "typeguard")

UNKNOWN = Location("<unknown>", 0)


def calling_place(boundary: FrameType | None) -> Place | None:
    """The innermost frame of the user's code, below ``boundary`` on the stack.

    Where only torch's own layers are running (`nn.MultiheadAttention` called directly), their line is shown.
    """
    frame: FrameType | None = sys._getframe(1)
    layer: FrameType | None = None
    while frame is not None and frame is not boundary:
        kind = _kind(frame.f_code.co_filename)
        if kind == "user":
            return Place(frame.f_code, frame.f_lasti)
        if kind == "layer" and layer is None:
            layer = frame
        frame = frame.f_back
    return Place(layer.f_code, layer.f_lasti) if layer is not None else None


@cache
def _kind(filename: str) -> str:
    """ "user", "layer" (torch's own attention code) or "plumbing"."""
    path = filename.replace(os.sep, "/")
    if path.startswith("<") or "/attn_guard/probe/" in path:
        return "plumbing"
    if "/torch/nn/" in path:
        plain = "/torch/nn/modules/module.py", "/torch/nn/modules/container.py", "/torch/nn/modules/linear.py"
        return "plumbing" if path.endswith(plain) else "layer"
    if any(f"/{package}/" in path for package in PLUMBING) and "site-packages" in path:
        return "plumbing"
    return "plumbing" if path.endswith(("/contextlib.py", "/functools.py")) else "user"


def locate(place: Place | None, module: str = "") -> Location:
    """The source span of a recorded place, its path shown from the current folder where it lies inside."""
    if place is None:
        return Location(UNKNOWN.path, UNKNOWN.line, module=module)
    line, end_line, column, end_column = _span(place.code, place.instruction)
    return Location(
        path=_shown(place.code.co_filename),
        line=line or place.code.co_firstlineno,
        column=0 if column is None else column + 1,
        end_line=end_line or 0,
        end_column=0 if end_column is None else end_column + 1,
        module=module,
    )


def raised_at(error: BaseException | None) -> Location:
    """The innermost line of the user's code that an exception passed through."""
    found: Place | None = None
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        code = trace.tb_frame.f_code
        if _kind(code.co_filename) == "user" or (found is None and _kind(code.co_filename) == "layer"):
            found = Place(code, trace.tb_lasti)
        trace = trace.tb_next
    return locate(found) if found else UNKNOWN


@cache
def _span(code: CodeType, instruction: int) -> tuple[int | None, int | None, int | None, int | None]:
    return next(islice(code.co_positions(), instruction // 2, None), (None, None, None, None))


def _shown(filename: str) -> str:
    here = str(Path.cwd()) + os.sep
    return filename.removeprefix(here)
