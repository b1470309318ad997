"""Finds the Python files and notebooks under the given paths, and reads them whatever their encoding."""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from attn_guard.errors import UsageError

SKIPPED_FOLDERS = frozenset({"__pycache__", "build", "dist", "node_modules", "site-packages", "venv"})


def python_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Every ``*.py`` and ``*.ipynb`` file under the paths, each once, in order. A file that is named itself is
    always taken.

    Raises `UsageError` for a path that does not exist.
    """
    chosen = list(paths)
    for path in chosen:
        if not path.exists():
            raise UsageError(f"{path}: no such file or folder")
    seen: set[str] = set()
    for path in chosen:
        for file in _walk(path) if path.is_dir() else (path,):
            identity = os.path.realpath(file)
            if identity not in seen:
                seen.add(identity)
                yield file


def is_notebook(path: str) -> bool:
    return path.endswith(".ipynb")


def _walk(root: Path) -> Iterator[Path]:
    # os.walk does not enter linked folders, so a loop of links cannot trap it
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if not _is_skipped(folder, name))
        for name in sorted(files):
            if name.endswith(".py") or is_notebook(name):
                yield Path(folder, name)


def _is_skipped(folder: str, name: str) -> bool:
    is_environment = os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))  # noqa: PTH110, PTH118
    return name in SKIPPED_FOLDERS or name.startswith(".") or is_environment


def decode(content: bytes) -> str:
    """Source text of a file, with line ends as they are and no byte order mark.

    The declared encoding counts. Bytes that it cannot decode are read as latin-1, which can only change comments
    and strings.
    """
    return content.decode(encoding_of(content)).removeprefix("\ufeff")


def encoding_of(content: bytes) -> str:
    """The encoding that `decode` reads the content of a file in."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return "latin-1"
    return encoding
