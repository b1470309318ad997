"""Classes of masks whose copies are no longer causal."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source

SOURCE = """\
from dataclasses import dataclass, replace

import torch


@dataclass
class BlockMask:
    lengths: torch.Tensor
    batch: int = 1

    {method}

    def materialize(self, shape):
        return torch.zeros(shape)


@dataclass
class {derived}(BlockMask):
    {override}
"""
OVERRIDE = "def materialize(self, shape):\n        return torch.full(shape, -torch.inf).triu(1)"
COPY = "def to(self, device):\n        return BlockMask(lengths=self.lengths.to(device), batch=self.batch)"


def found(method: str = COPY, derived: str = "CausalBlockMask", override: str = OVERRIDE) -> list[tuple[str, str]]:
    source = SOURCE.format(method=method, derived=derived, override=override)
    lines = source.splitlines()
    return [(f.code, lines[f.location.line - 1].strip()[:17]) for f in lint_source(source, "masks.py")]


@pytest.mark.parametrize(
    "method",
    [
        COPY,
        "def clone(self):\n        return BlockMask(self.lengths.clone(), self.batch)",
        "def __getitem__(self, at):\n        '''Some.'''\n        return BlockMask(self.lengths[at], self.batch)",
    ],
)
@pytest.mark.parametrize("derived", ["CausalBlockMask", "BlockCausalFromBottomRightMask"])
def test_copy_that_names_its_class_is_found(method: str, derived: str) -> None:
    assert found(method, derived) == [("ATN214", "return BlockMask(")]


@pytest.mark.parametrize(
    "method",
    [
        "def to(self, device):\n        return type(self)(lengths=self.lengths.to(device), batch=self.batch)",
        "def to(self, device):\n        return self.__class__(self.lengths.to(device), self.batch)",
        "def to(self, device):\n        return replace(self, lengths=self.lengths.to(device))",
        "def to(self, device):\n        return self",
        "def of(self, lengths):\n        return BlockMask(lengths, self.batch)",  # another mask, and no copy
        "@classmethod\n    def made(cls, lengths):\n        return BlockMask(lengths)",
        "def empty(self):\n        return BlockMask()",
    ],
)
def test_copy_of_the_right_class_and_other_masks_are_fine(method: str) -> None:
    assert found(method) == []


@pytest.mark.parametrize(
    ("derived", "override"),
    [
        ("PaddedBlockMask", OVERRIDE),  # not causal by its name
        ("NonCausalBlockMask", OVERRIDE),
        ("CausalBlockThing", OVERRIDE),  # no mask by its name
        ("CausalBlockMask", "pass"),  # nothing is anew
        ("CausalBlockMask", f"{OVERRIDE}\n\n    def to(self, device):\n        return CausalBlockMask(self.lengths)"),
    ],
)
def test_subclass_that_loses_nothing_is_fine(derived: str, override: str) -> None:
    assert found(derived=derived, override=override) == []
