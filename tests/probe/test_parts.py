"""The attention classes of a model, each looked at by itself on the call that it gets there."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor, nn

import attn_guard
from attn_guard.probe.parts import MOST, parts
from tests.probe.modules import D, FusedQkv, H, features, seeded


class BatchNormed(FusedQkv):
    """Attention over features from which the mean of the batch was taken."""

    def forward(self, x: Tensor) -> Tensor:
        attended: Tensor = super().forward(x - x.mean(dim=0))
        return attended


class Model(nn.Module):
    """One number comes out, so that as a whole it has no samples that could be told apart."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x.mean()


def test_what_the_whole_does_not_show() -> None:
    model = seeded(lambda: Model(FusedQkv(), BatchNormed(), BatchNormed()))
    (found,) = attn_guard.check(model, features())
    assert (found.code, found.location.module) == ("ATN404", "layers.1")
    assert "BatchNormed" in found.reproduce
    assert attn_guard.check(seeded(lambda: Model(FusedQkv(), FusedQkv())), features()).ok


def test_what_is_ignored_or_allowed_in_the_whole_is_so_in_its_parts() -> None:
    @attn_guard.allow("ATN404", "contrastive")
    class Contrastive(Model):
        pass

    assert attn_guard.check(seeded(lambda: Model(BatchNormed())), features(), ignore=["ATN404"]).ok
    assert attn_guard.check(seeded(lambda: Contrastive(BatchNormed())), features()).ok


def found(model: nn.Module) -> list[str]:
    return list(parts(model, attn_guard.check(model, features()).sites))


def test_one_of_each_class_and_configuration() -> None:
    model = seeded(lambda: Model(FusedQkv(), FusedQkv(), BatchNormed(), FusedQkv(causal=True)))
    assert found(model) == ["layers.0", "layers.2", "layers.3"]


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (FusedQkv, []),
        (lambda: Model(nn.TransformerEncoderLayer(D, H, 23, batch_first=True)), []),
        (lambda: Model(*(seeded(FusedQkv) for _ in range(2))), ["layers.0"]),
    ],
)
def test_the_whole_and_layers_of_torch_are_no_parts(build: Any, names: list[str]) -> None:
    assert found(seeded(build)) == names


def test_not_more_than_a_few_kinds() -> None:
    layers = [FusedQkv() for _ in range(MOST + 2)]
    for number, layer in enumerate(layers):
        layer.number = number  # type: ignore[assignment]
    assert len(found(Model(*layers))) == MOST
