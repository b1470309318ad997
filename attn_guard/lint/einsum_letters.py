"""The letters of an einsum: which of them nothing else in the equation has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

_EQUATION = re.compile(r"einsum\([^\"'\n]*\s*(?<![fF])[\"']([^\"'\n{}]+)[\"']")


def letters(equation: str) -> list[list[str]]:
    """The axes of each operand and, where there is an arrow, of the result; an ellipsis is ".", named axes are words.

    A part of one word is one axis where another part has this word among others: ``b m bins, bins -> b m``.
    """
    parts = [part.replace("...", ".").strip() for part in re.split(r",|->", equation)]
    words = {word for part in parts if " " in part for word in part.split()}
    return [part.split() if " " in part or part in words else list(part) for part in parts]


def lost_letters(equation: str) -> Iterator[str]:
    """What is wrong with the letters of a product; sums and diagonals of a single operand are meant."""
    *operands, result = letters(equation)
    if equation.count("->") != 1 or len(operands) < 2:
        return
    in_how_many = Counter(name for operand in operands for name in set(operand))
    for operand in operands:
        for name, count in Counter(operand).items():
            if not name.isidentifier():
                continue
            if count > 1:
                yield f"axis {name} is named twice in one operand; only the diagonal is read"
            elif in_how_many[name] == 1 and name not in result:
                yield f"axis {name} stands in one operand alone, which is summed over it before the product"


def holds_lost_letter(text: str) -> bool:
    """Whether a piece of source has an einsum with such a letter."""
    return "einsum" in text and any(any(lost_letters(equation)) for equation in _EQUATION.findall(text))
