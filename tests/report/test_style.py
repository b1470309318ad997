"""When colour and glyphs are used."""

from __future__ import annotations

import io

import pytest

from attn_guard.report.style import needs_ascii, wants_color


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_terminals_get_colour_and_files_do_not() -> None:
    assert wants_color(Terminal())
    assert not wants_color(io.StringIO())


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_declined(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert not wants_color(Terminal())


def test_colour_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert wants_color(io.StringIO())


@pytest.mark.parametrize(("encoding", "expected"), [("utf-8", False), ("ascii", True), ("cp1252", True)])
def test_glyphs_are_ascii_where_the_encoding_lacks_them(encoding: str, expected: bool) -> None:
    assert needs_ascii(io.TextIOWrapper(io.BytesIO(), encoding=encoding)) is expected
