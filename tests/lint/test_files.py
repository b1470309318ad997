"""Which files are read, and which of them can be dropped unread."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_guard import lint
from attn_guard.errors import UsageError
from attn_guard.lint.files import decode, python_files
from attn_guard.lint.prefilter import holds_core, may_matter
from tests.lint.sources import attention

BROKEN = attention("q @ k.mT")


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(BROKEN, encoding="utf-8")


def found(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in python_files([folder])]


def test_python_files_are_found_in_order(tmp_path: Path) -> None:
    write(tmp_path, "b.py", "a/z.py", "a/y.py", "notes.txt")
    assert found(tmp_path) == ["b.py", "a/y.py", "a/z.py"]


def test_folders_that_hold_no_source_of_the_user_are_skipped(tmp_path: Path) -> None:
    write(
        tmp_path, ".git/a.py", "venv/a.py", "build/a.py", "__pycache__/a.py", ".tox/a.py", "node_modules/a.py", "ok.py"
    )
    assert found(tmp_path) == ["ok.py"]


def test_virtual_environment_of_any_name_is_skipped(tmp_path: Path) -> None:
    write(tmp_path, "mine/lib/a.py", "env/agent.py")
    (tmp_path / "mine" / "pyvenv.cfg").write_text("", encoding="utf-8")
    assert found(tmp_path) == ["env/agent.py"]


def test_skipped_folder_that_is_named_itself_is_read(tmp_path: Path) -> None:
    write(tmp_path, "build/a.py")
    assert found(tmp_path / "build") == ["a.py"]


def test_file_named_twice_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    assert lint([tmp_path, tmp_path / "a.py", tmp_path]).files == 1


def test_loop_of_links_ends(tmp_path: Path) -> None:
    write(tmp_path, "a/b.py")
    (tmp_path / "a" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "a" / "link.py").symlink_to(tmp_path / "a" / "b.py")
    assert found(tmp_path) == ["a/b.py"]


def test_dangling_link_is_a_finding_and_the_run_goes_on(tmp_path: Path) -> None:
    write(tmp_path, "good.py")
    (tmp_path / "dangling.py").symlink_to(tmp_path / "nowhere.py")
    assert sorted(lint(tmp_path).codes) == ["ATN101", "ATN900"]


def test_missing_path_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.py: no such file or folder"):
        lint(tmp_path / "nowhere.py")


def test_unknown_code_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown code 'ATN999'"):
        lint(tmp_path, select=["ATN999"])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xef\xbb\xbfx = 1\n", "x = 1\n"),
        ("# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"), "# -*- coding: latin-1 -*-\nx = 'é'\n"),
        (b"x = '\xe9'\n", "x = 'é'\n"),
        (b"# -*- coding: no-such-codec -*-\n", "# -*- coding: no-such-codec -*-\n"),
    ],
)
def test_any_encoding_is_decoded(content: bytes, text: str) -> None:
    assert decode(content) == text


@pytest.mark.parametrize(
    "line",
    [
        "w = F.softmax(s, -1)",
        "w = s.softmax(-1)",
        "self.act = nn.Softmax(dim=-1)",
        "from torch.nn.functional import softmax as sm, linear\nsm(x)",
        "F.scaled_dot_product_attention(q, k, v)",
        "nn.MultiheadAttention(8, 2)",
        "nn.TransformerEncoderLayer(8, 2)",
        "from torch.nn import TransformerEncoder\nTransformerEncoder(layer, 2)",
    ],
)
def test_files_that_hold_a_core_are_kept(line: str) -> None:
    assert may_matter(line.encode())
    assert holds_core(line)


@pytest.mark.parametrize(
    "line", ["import torch", "x = F.log_softmax(x, -1)", "class MyTransformerEncoderOutput: ...", ""]
)
def test_files_without_a_core_are_dropped(line: str) -> None:
    assert not may_matter(line.encode())
