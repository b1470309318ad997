"""Damages sources the way editors, merges and broken downloads do, and in ways that nobody would think of."""

from __future__ import annotations

import random
import re

ODD = (
    "\x00",
    "\ufeff",
    "\r",
    "\x0c",
    "\t",
    "\\",
    '"""',
    "'",
    "(",
    ")",
    "[",
    "}",
    ":",
    "=",
    "@",
    "#",
    "\u2028",
    "é",
    "🙂",
    "…",
)
WORDS = (
    "lambda",
    "yield",
    "await",
    "async",
    "match",
    "None",
    "del",
    "not",
    "if",
    "softmax",
    "mask",
    "torch",
    "*",
    "**",
    "->",
    ":=",
)


def damaged(source: str, random: random.Random) -> bytes:
    """One to four kinds of damage to a source."""
    for _ in range(random.randint(1, 4)):
        source = random.choice(DAMAGES)(source, random)
    content = source.encode("utf-8", "surrogatepass")
    if random.random() < 0.1:
        at = random.randrange(len(content) + 1)
        content = content[:at] + random.randbytes(random.randint(1, 4)) + content[at:]
    return content


def _truncated(source: str, random: random.Random) -> str:
    return source[: random.randrange(len(source) + 1)]


def _without_piece(source: str, random: random.Random) -> str:
    start = random.randrange(len(source) + 1)
    return source[:start] + source[start + random.randint(1, 60) :]


def _with_odd_character(source: str, random: random.Random) -> str:
    at = random.randrange(len(source) + 1)
    return source[:at] + random.choice(ODD) * random.randint(1, 3) + source[at:]


def _tokens(source: str) -> list[str]:
    return re.findall(r"\w+|\s+|[^\w\s]", source)


def _with_other_token(source: str, random: random.Random) -> str:
    tokens = _tokens(source)
    if tokens:
        tokens[random.randrange(len(tokens))] = random.choice([*WORDS, *tokens])
    return "".join(tokens)


def _with_swapped_tokens(source: str, random: random.Random) -> str:
    tokens = _tokens(source)
    if tokens:
        one, other = random.randrange(len(tokens)), random.randrange(len(tokens))
        tokens[one], tokens[other] = tokens[other], tokens[one]
    return "".join(tokens)


def _with_lines_out_of_order(source: str, random: random.Random) -> str:
    lines = source.split("\n")
    at = random.randrange(len(lines))
    lines.insert(random.randrange(len(lines) + 1), lines[at] if random.random() < 0.5 else lines.pop(at))
    return "\n".join(lines)


def _indented_otherwise(source: str, random: random.Random) -> str:
    lines = source.split("\n")
    at = random.randrange(len(lines))
    lines[at] = random.choice(["", " ", "\t", "        "]) + lines[at].lstrip()
    return "\n".join(lines)


def _with_other_line_ends(source: str, random: random.Random) -> str:
    return source.replace("\n", random.choice(["\r\n", "\r", "\n\r", "\x0c\n"]))


def _nested(source: str, random: random.Random) -> str:
    at = random.randrange(len(source) + 1)
    depth = random.choice([20, 150, 400])
    opening, closing = random.choice([("(", ")"), ("[", "]"), ("f(", ")"), ("lambda: (", ")"), ("-", ""), ("not ", "")])
    return source[:at] + opening * depth + "softmax(x)" + closing * depth + source[at:]


DAMAGES = (
    _truncated,
    _without_piece,
    _with_odd_character,
    _with_other_token,
    _with_swapped_tokens,
    _with_lines_out_of_order,
    _indented_otherwise,
    _with_other_line_ends,
    _nested,
)
