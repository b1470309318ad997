"""A file as text that can be edited: a Python file, or the code cells of a notebook."""

from __future__ import annotations

from typing import Protocol

from attn_guard.findings import Location
from attn_guard.lint.files import decode, encoding_of, is_notebook
from attn_guard.notebook import Notebook


class Document(Protocol):
    """What there is to edit in a file."""

    @property
    def text(self) -> str:
        """The Python text that is read."""

    def written(self, text: str) -> bytes:
        """The content of the file with another text. Raises `ValueError` where the file cannot hold it."""

    def joined(self, place: Location) -> Location:
        """Where a place that is reported is in the text."""


class PythonFile:
    """A Python file. Encoding, byte order mark and line ends stay."""

    def __init__(self, content: bytes) -> None:
        self.text = decode(content)
        self._encoding = encoding_of(content)  # "utf-8-sig" writes the mark as well

    def written(self, text: str) -> bytes:
        return text.encode(self._encoding)

    def joined(self, place: Location) -> Location:
        return place


def document(content: bytes, path: str) -> Document:
    """Raises `attn_guard.notebook.NotebookError` for a notebook that cannot be read."""
    return Notebook(content) if is_notebook(path) else PythonFile(content)
