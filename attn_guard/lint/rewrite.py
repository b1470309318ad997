"""Changes the text of a source file, and nothing else about it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from attn_guard.errors import UsageError
from attn_guard.lint.documents import Document, document


def rewrite(path: Path, edit: Callable[[Document], str]) -> bool:
    """Puts the edited text in the place of a file's text, or of a notebook's; says whether anything changed.

    Encoding, byte order mark, line ends and permissions stay. The new file takes the place of the old one in one step,
    so that an interruption leaves either of them whole. Raises `UsageError` where the file cannot be written.
    """
    content = path.read_bytes()
    file = document(content, str(path))
    changed = edit(file)
    if changed == file.text:
        return False
    replace_file(path, file.written(changed))
    return True


def replace_file(path: Path, content: bytes) -> None:
    """Gives a file another content, in one step. Raises `UsageError` where it cannot be written."""
    target = path.resolve()  # a link stays a link
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(name).chmod(target.stat().st_mode)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
