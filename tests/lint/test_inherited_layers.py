"""Layers that a class gets from the transformer layers of torch that it is derived from."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source

SOURCE = """\
import copy

import torch
from torch import nn


class Layer(torch.nn.TransformerEncoderLayer):
CONSTRUCTOR
    def forward(self, src, src_mask=None):
        normed = self.norm1(src)
        mixed, weights = self.self_attn(normed, normed, normed, attn_mask=src_mask)
        src = src + self.dropout1(mixed)
        return src + self.linear2(self.dropout(self.linear1(self.norm2(src)))), weights


class Stack(nn.TransformerEncoder):
    def __init__(self, layer, depth):
        super(Stack, self).__init__(layer, depth)
CLONES
    def forward(self, src):
        maps = []
        for layer in self.layers:
            src, weights = layer(src)
            maps.append(weights)
        return src, maps


class Positions(nn.Module):
    def __init__(self, d_model, longest=256):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(longest, 1, d_model))

    def forward(self, x):
        return x + self.table[: x.size(AXIS)]


class Model(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.positions = Positions(d_model)
        self.encoder = Stack(MADE, 6)

    def forward(self, x):
        return self.encoder(self.positions(x))
"""
OWN = "    def __init__(self, d_model, nhead, **options):\n        super().__init__(d_model, nhead, GIVEN)\n"
CLONED = "        self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(depth)])\n"


def codes(constructor: str, made: str, clones: str = "", axis: int = 0) -> list[str]:
    source = SOURCE.replace("CONSTRUCTOR\n", constructor).replace("CLONES\n", clones).replace("AXIS", str(axis))
    return [finding.code for finding in lint_source(source.replace("MADE", made), "model.py")]


@pytest.mark.parametrize("clones", ["", CLONED])
@pytest.mark.parametrize(
    ("constructor", "made"),
    [
        ("", "Layer(d_model, 8, batch_first=True)"),
        ("", "Layer(d_model, 8, 2048, 0.1, 'relu', 1e-5, True)"),
        (OWN.replace("GIVEN", "batch_first=True"), "Layer(d_model, 8)"),
    ],
)
def test_positions_on_the_batch_of_an_inherited_attention_are_found(constructor: str, made: str, clones: str) -> None:
    assert codes(constructor, made, clones) == ["ATN707"]


@pytest.mark.parametrize(
    ("constructor", "made"),
    [
        ("", "Layer(d_model, 8)"),
        ("", "Layer(d_model, 8, batch_first=False)"),
        ("", "Layer(d_model, 8, **options)"),
        (OWN.replace("GIVEN", "**options"), "Layer(d_model, 8)"),
    ],
)
def test_time_first_and_unknown_layers_are_fine(constructor: str, made: str) -> None:
    assert codes(constructor, made) == []
