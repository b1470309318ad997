"""Comments that silence findings: ``# attn-guard: ignore[ATN201] reason``, ``file-ignore[ATN201]``, ``# noqa: ATN201``.

An ignore comment holds for its own line. Two cases go further, because formatters move comments: a comment alone on its
line also holds for the next line of code, and one that closes a statement of several lines holds for all of them.
A bare ``# noqa`` that names no code silences nothing.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

_CODE = r"[A-Za-z]+[0-9]+"
_OURS = re.compile(r"#\s*attn-guard:\s*(?P<scope>file-ignore|ignore)\[(?P<codes>[^\]]*)\]")
_NOQA = re.compile(rf"#\s*noqa\s*:\s*(?P<codes>{_CODE}(?:[\s,]+{_CODE})*)", re.IGNORECASE)
_NAMED = re.compile(r"noqa\s*:[^\n]*atn")
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


@dataclass(frozen=True, slots=True)
class Suppression:
    """One code that one comment silences: where the code is written, and the lines for which it holds (None: all).

    ``is_noqa`` says that the comment is one that other tools read as well.
    """

    code: str
    line: int
    column: int
    lines: range | None
    is_noqa: bool = False

    def holds(self, code: str, line: int) -> bool:
        return code == self.code and (self.lines is None or line in self.lines)


@dataclass(frozen=True)
class Suppressions:
    """What the comments of one source file silence."""

    all: tuple[Suppression, ...] = ()

    @classmethod
    def of(cls, source: str) -> Suppressions:
        """Reads the comments of a file. A file that breaks off keeps the comments before the break."""
        lower = source.lower()
        if "attn-guard:" not in lower and not _NAMED.search(lower):
            return cls()
        found = (one for comment, lines in _comments(source) for one in _suppressions(comment, lines))
        return cls(tuple(found))

    def silences(self, code: str, line: int) -> bool:
        return any(one.holds(code, line) for one in self.all)


@dataclass(frozen=True, slots=True)
class _Comment:
    text: str
    line: int
    column: int


def _suppressions(comment: _Comment, lines: range) -> Iterator[Suppression]:
    for pattern in (_OURS, _NOQA):
        for match in pattern.finditer(comment.text):
            everywhere = "scope" in match.groupdict() and match["scope"] == "file-ignore"
            for code in re.finditer(r"[^\s,]+", match["codes"]):
                column = comment.column + match.start("codes") + code.start()
                yield Suppression(
                    code[0].upper(), comment.line, column, None if everywhere else lines, is_noqa=pattern is _NOQA
                )


def _comments(source: str) -> Iterator[tuple[_Comment, range]]:
    """Each comment with the lines that it speaks for."""
    waiting: list[_Comment] = []  # comments alone on their line, until the next line of code
    last: _Comment | None = None
    start = 0  # first line of the statement that is being read, 0 between statements
    for token in _tokens(source):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            comment = _Comment(token.string, line, token.start[1] + 1)
            if token.line.lstrip().startswith("#"):
                waiting.append(comment)
            else:
                last = comment
            continue
        if last is not None:
            closes = token.type == tokenize.NEWLINE and start
            yield last, range(start if closes else last.line, last.line + 1)
            last = None
        if token.type not in _LAYOUT:
            start = start or line
            yield from ((comment, range(comment.line, line + 1)) for comment in waiting)
            waiting = []
        elif token.type == tokenize.NEWLINE:
            start = 0
    yield from ((comment, range(comment.line, comment.line + 1)) for comment in [*waiting, *([last] if last else [])])


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokenize.generate_tokens(io.StringIO(source).readline)
    except (tokenize.TokenError, SyntaxError):
        return
