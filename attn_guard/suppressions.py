"""Comments that silence findings: ``# attn-guard: ignore[ATN201] reason``, ``file-ignore[ATN201]``, ``# noqa: ATN201``.

An ignore comment holds for its own line. Two cases go further, because formatters move comments: a comment alone on its
line also holds for the next line of code, and one that closes a statement of several lines holds for all of them.
A bare ``# noqa`` that names no code silences nothing.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

_CODE = r"[A-Za-z]+[0-9]+"
_OURS = re.compile(r"#\s*attn-guard:\s*(?P<scope>file-ignore|ignore)\[(?P<codes>[^\]]*)\]")
_NOQA = re.compile(rf"#\s*noqa\s*:\s*(?P<codes>{_CODE}(?:[\s,]+{_CODE})*)", re.IGNORECASE)
_LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}


@dataclass(frozen=True)
class Suppressions:
    """Which codes the comments of one source file silence: in the whole file, and line by line."""

    everywhere: frozenset[str] = frozenset()
    by_line: Mapping[int, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, source: str) -> Suppressions:
        """Reads the comments of a file. A file that breaks off keeps the comments before the break."""
        if "attn-guard:" not in source and "noqa" not in source.lower():
            return cls()
        everywhere: set[str] = set()
        by_line: defaultdict[int, set[str]] = defaultdict(set)
        for comment, lines in _comments(source):
            here, file = _codes(comment)
            everywhere |= file
            for line in lines if here else ():
                by_line[line] |= here
        return cls(frozenset(everywhere), {line: frozenset(codes) for line, codes in by_line.items()})

    def silences(self, code: str, line: int) -> bool:
        return code in self.everywhere or code in self.by_line.get(line, frozenset())


def _codes(comment: str) -> tuple[set[str], set[str]]:
    """The codes that a comment silences here, and those that it silences in the whole file."""
    here: set[str] = set()
    file: set[str] = set()
    for match in _OURS.finditer(comment):
        target = file if match["scope"] == "file-ignore" else here
        target.update(_split(match["codes"]))
    for match in _NOQA.finditer(comment):
        here.update(_split(match["codes"]))
    return here, file


def _split(codes: str) -> Iterable[str]:
    return (code.upper() for code in re.split(r"[\s,]+", codes) if code)


def _comments(source: str) -> Iterator[tuple[str, range]]:
    """Each comment with the lines that it speaks for."""
    waiting: list[tuple[str, int]] = []  # comments alone on their line, until the next line of code
    last: tuple[str, int] | None = None
    start = 0  # first line of the statement that is being read, 0 between statements
    for token in _tokens(source):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            if token.line.lstrip().startswith("#"):
                waiting.append((token.string, line))
            else:
                last = (token.string, line)
            continue
        if last is not None:
            closes = token.type == tokenize.NEWLINE and start
            yield last[0], range(start if closes else last[1], last[1] + 1)
            last = None
        if token.type not in _LAYOUT:
            start = start or line
            yield from ((comment, range(place, line + 1)) for comment, place in waiting)
            waiting = []
        elif token.type == tokenize.NEWLINE:
            start = 0
    yield from ((comment, range(place, place + 1)) for comment, place in [*waiting, *([last] if last else [])])


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokenize.generate_tokens(io.StringIO(source).readline)
    except (tokenize.TokenError, SyntaxError):
        return
