"""The mutants are what they say they are, and a sample of them is found."""

from __future__ import annotations

import ast
import random

import pytest
import torch

from tests.bench.mutants import fault
from tests.bench.mutants.experiment import differs
from tests.bench.mutants.fault import Mutant
from tests.bench.mutants.score import Score, report

ALL = list(fault.mutants())
SAMPLE = random.Random(20).sample(ALL, 40)


def test_there_are_enough_of_them_in_enough_styles() -> None:
    assert len(ALL) >= 250
    assert len({mutant.style for mutant in ALL}) >= 9


@pytest.mark.parametrize("style", fault.NAMES)
def test_every_edit_applies_once_and_leaves_python(style: str) -> None:
    for mutant in fault.mutants(style):
        ast.parse(mutant.source)
        assert mutant.source != fault.source(style)


@pytest.mark.parametrize("style", fault.NAMES)
def test_every_line_that_may_be_blamed_is_there(style: str) -> None:
    for mutant in fault.mutants(style):
        lines = [line.strip() for line in mutant.source.splitlines()]
        for text in mutant.fault.blame:
            assert any(line.startswith(text) for line in lines), f"{mutant.name}: {text}"


@pytest.mark.parametrize("style", fault.NAMES)
def test_no_edit_is_listed_twice(style: str) -> None:
    sources = [
        (mutant.source, tuple(mutant.fault.sizes.items()), mutant.fault.padded) for mutant in fault.mutants(style)
    ]
    assert len(sources) == len(set(sources))


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SAMPLE, ids=lambda mutant: mutant.name)
def test_a_mutant_differs_from_its_right_twin_and_is_found(mutant: Mutant) -> None:
    torch.set_num_threads(1)
    situation = differs(mutant)
    assert situation
    score = Score(mutant, situation, report(mutant.module, mutant.fault))
    assert score.found, score.instead


@pytest.mark.slow
@pytest.mark.parametrize("style", fault.NAMES)
def test_nothing_is_found_in_a_right_style(style: str) -> None:
    assert [finding for finding in report(fault.right(style)) if finding.fails] == []
