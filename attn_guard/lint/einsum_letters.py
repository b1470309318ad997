"""The letters of an einsum: which of them nothing else in the equation has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_EQUATION = re.compile(r"einsum\([^\"'\n]*\s*(?<![fF])[\"']([^\"'\n{}]+)[\"']")


def letters(equation: str) -> list[list[str]]:
    """The axes of each operand and, where there is an arrow, of the result; an ellipsis is ".", named axes are words.

    A part of one word is one axis where another part has this word among others: ``b m bins, bins -> b m``.
    """
    parts = [part.replace("...", ".").strip() for part in re.split(r",|->", equation)]
    words = {word for part in parts if " " in part for word in part.split()}
    return [part.split() if " " in part or part in words else list(part) for part in parts]


@dataclass(frozen=True, slots=True)
class LostLetter:
    """An axis of one operand that nothing else in an equation has, or that stands ``twice`` in it.

    ``axis`` is its place, counted from the end where an ellipsis is in front of it. ``shared`` says that another
    operand has lost an axis as well, which is one axis under two letters.
    """

    name: str
    operand: int
    axis: int
    twice: bool = False
    shared: bool = False


def told(lost: Sequence[LostLetter]) -> str:
    """What is wrong with an equation that has lost these."""
    twice = next((letter.name for letter in lost if letter.twice), None)
    if twice:
        return f"axis {twice} is named twice in one operand; only the diagonal is read"
    *others, last = (letter.name for letter in lost)
    if not others:
        return f"axis {last} stands in one operand alone, which is summed over it before the product"
    every = f"{', '.join(others)} and {last}"
    return f"axes {every} stand in one operand alone each, which is summed over them before the product"


def lost_letters(equation: str) -> Iterator[LostLetter]:
    """What is wrong with the letters of a product; sums and diagonals of a single operand are meant."""
    *operands, result = letters(equation)
    if equation.count("->") != 1 or len(operands) < 2:
        return
    in_how_many = Counter(name for operand in operands for name in set(operand))
    alone = [[name for name in operand if in_how_many[name] == 1 and name not in result] for operand in operands]
    shared = sum(map(bool, alone)) > 1
    for index, operand in enumerate(operands):
        for name, count in Counter(operand).items():
            if name.isidentifier() and (count > 1 or name in alone[index]):
                at = operand.index(name)
                axis = at - len(operand) if "." in operand[:at] else at
                yield LostLetter(name, index, axis, count > 1, shared)


def holds_lost_letter(text: str) -> bool:
    """Whether a piece of source has an einsum with such a letter."""
    return "einsum" in text and any(any(lost_letters(equation)) for equation in _EQUATION.findall(text))
