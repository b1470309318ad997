"""Source files are changed in place, and keep everything but their text."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from attn_guard.errors import UsageError
from attn_guard.lint.documents import Document
from attn_guard.lint.rewrite import rewrite


def shout(file: Document) -> str:
    return file.text.replace("quiet", "LOUD")


@pytest.mark.parametrize(
    "content",
    [
        b"a = 'quiet'\n",
        b"a = 'quiet'\r\nb = 1\r\n",
        b"\xef\xbb\xbfa = 'quiet'\n",
        "# -*- coding: latin-1 -*-\na = 'quiet é'\n".encode("latin-1"),
        "a = 'quiet é'\n".encode("latin-1"),  # not what it claims to be, UTF-8
        "a = 'quiet é ✗'".encode(),
        b"a = 'quiet'\x0c\n\ttab",
    ],
)
def test_only_the_text_changes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.py"
    path.write_bytes(content)
    assert rewrite(path, shout)
    assert path.read_bytes() == content.replace(b"quiet", b"LOUD")


def test_nothing_is_written_where_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("a = 1\n")
    before = path.stat()
    assert not rewrite(path, shout)
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


def test_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("quiet")
    path.chmod(0o755)
    rewrite(path, shout)
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    path, link = tmp_path / "model.py", tmp_path / "link.py"
    path.write_text("quiet")
    link.symlink_to(path)
    rewrite(link, shout)
    assert link.is_symlink()
    assert path.read_text() == "LOUD"


def test_an_edit_that_fails_leaves_the_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("quiet")
    with pytest.raises(ZeroDivisionError):
        rewrite(path, lambda text: str(1 // 0))
    assert path.read_text() == "quiet"
    assert list(tmp_path.iterdir()) == [path]


def test_a_text_that_the_encoding_cannot_hold_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_bytes("# -*- coding: latin-1 -*-\nquiet é\n".encode("latin-1"))
    before = path.read_bytes()
    with pytest.raises(UnicodeEncodeError):
        rewrite(path, lambda file: file.text + "✗")
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.py"
    path.write_text("quiet")

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with pytest.raises(UsageError, match=r"model\.py: cannot be written: Permission denied"):
        rewrite(path, shout)
