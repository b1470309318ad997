"""The letters of an einsum: which of them nothing else in the equation has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

_EQUATION = re.compile(r"einsum\([^\"'\n]*\s*(?<![fF])[\"']([^\"'\n{}]+)[\"']")


def letters(part: str) -> list[str]:
    """The axes of one operand or of the result; an ellipsis is ".", named axes are words."""
    return part.split() if " " in part.strip() else list(part.replace("...", ".").strip())


def lost_letters(equation: str) -> Iterator[str]:
    """What is wrong with the letters of a product; sums and diagonals of a single operand are meant."""
    left, arrow, right = equation.partition("->")
    operands, result = [letters(part) for part in left.split(",")], letters(right)
    if not arrow or len(operands) < 2:
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
