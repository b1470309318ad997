"""The chain of shapes, with scale, mask, weights and source lines."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import attn_guard
from attn_guard import reference
from attn_guard.errors import UsageError
from attn_guard.probe.chain import links
from tests.probe.modules import CAUSAL_STYLES, Classifier, CrossAttention, Decoder, FusedQkv, features, later, seeded
from tests.probe.silent_modules import Pooling


def chain(module: nn.Module, *args: torch.Tensor) -> str:
    """The first line of the drawing, up to the name of the module."""
    return str(attn_guard.xray(module, args)).splitlines()[0].partition(": ")[2]


@pytest.fixture
def x() -> torch.Tensor:
    return features(2, 5, 64)


def test_the_reference_in_one_line(x: torch.Tensor) -> None:
    assert chain(seeded(reference.MultiHeadAttention, 64, 8), x) == (
        "x (2,5,64) → qkv (2,5,192) → heads (2,8,5,8) → scores (2,8,5,5) ·0.3536 → softmax"
        " → context (2,8,5,8) → merge (2,5,64) → out (2,5,64)"
    )


@pytest.mark.parametrize("need_weights", [True, False])
def test_the_built_in_has_the_same_chain(x: torch.Tensor, need_weights: bool) -> None:
    module = seeded(lambda: nn.MultiheadAttention(64, 8, batch_first=True))
    seen = attn_guard.xray(module, (x, x, x), {"need_weights": need_weights})
    shapes = [link.shape for link in links(seen.sites[0]) if link.shape]
    assert shapes == [
        (2, 5, 64),
        (2, 5, 192),
        (2, 8, 5, 8),
        (2, 8, 5, 5),
        (2, 8, 5, 8),
        (2, 5, 64),
        (2, 5, 64),
    ]
    assert "·0.3536" in str(seen)


def test_a_causal_mask_is_a_link_with_its_fill() -> None:
    drawn = chain(seeded(CAUSAL_STYLES["fused qkv"]), features())
    assert "·0.378 → mask -inf → softmax" in drawn


def test_separate_projections_are_links_of_their_own() -> None:
    drawn = chain(seeded(CrossAttention), features(2, 5), features(2, 7))
    assert drawn.startswith("x (2,5,21) → q (2,5,21) → kv (2,7,42) → heads (2,3,5,7) → scores (2,3,5,7)")


def test_each_link_has_its_source_line(x: torch.Tensor) -> None:
    (site,) = attn_guard.xray(seeded(reference.MultiHeadAttention, 64, 8), x).sites
    source = Path(reference.__file__).read_text(encoding="utf-8").splitlines()
    expected = {
        "qkv": "self.qkv(x)",
        "scores": "query @ key",
        "softmax": "softmax(dim=-1)",
        "context": "weights @ value",
        "merge": ".reshape(",
        "out": "self.out(",
    }
    lines = {link.name: link.location for link in links(site)}
    for name, fragment in expected.items():
        location = lines[name]
        assert location is not None
        assert Path(location.path).name == "reference.py"
        assert fragment in source[location.line - 1]


def test_the_drawing_names_every_place(x: torch.Tensor) -> None:
    seen = attn_guard.xray(seeded(reference.MultiHeadAttention, 64, 8), x)
    lines = str(seen).splitlines()
    assert len(lines) == 1 + sum(link.location is not None for link in links(seen.sites[0]))
    assert all("reference.py:" in line for line in lines[1:])


class TestWeights:
    def test_are_those_of_the_reference(self, x: torch.Tensor) -> None:
        module = seeded(reference.MultiHeadAttention, 64, 8)
        (site,) = attn_guard.xray(module, x).sites
        with torch.no_grad():
            _, weights = module(x)
        assert torch.equal(site.weights.view(2, 8, 5, 5), weights)

    def test_of_the_built_in_head_by_head(self, x: torch.Tensor) -> None:
        module = seeded(lambda: nn.MultiheadAttention(64, 8, batch_first=True))
        seen = attn_guard.xray(module, (x, x, x), {"need_weights": False, "attn_mask": later(5)})
        with torch.no_grad():
            _, weights = module(x, x, x, attn_mask=later(5), average_attn_weights=False)
        assert torch.allclose(seen.sites[0].weights.view(2, 8, 5, 5), weights, atol=1e-6)


def test_one_chain_per_site() -> None:
    seen = attn_guard.xray(seeded(Decoder, layers=2), torch.ones(2, 5, dtype=torch.long))
    drawn = str(seen).split("\n\n")
    assert [part.partition(":")[0] for part in drawn] == ["blocks.0.attn", "blocks.1.attn"]


def test_pooling_is_drawn_as_well() -> None:
    seen = attn_guard.xray(seeded(Pooling), features())
    assert chain(seeded(Pooling), features()) == "scores (2,3,1,5) → softmax → context"
    assert str(seen).startswith("Pooling: ")
    assert repr(seen).endswith("1 attention computations>")


def test_without_attention() -> None:
    assert str(attn_guard.xray(seeded(Classifier), features())) == "no attention found"


def test_without_arguments_the_signature_decides() -> None:
    seen = attn_guard.xray(seeded(FusedQkv))
    assert len(seen.sites) == 1


class TestErrors:
    def test_no_module(self) -> None:
        with pytest.raises(UsageError, match=r"xray\(\) takes a torch.nn.Module, got str"):
            attn_guard.xray("model")  # type: ignore[arg-type]

    def test_arguments_that_do_not_fit_raise_what_the_module_raises(self) -> None:
        with pytest.raises(RuntimeError, match="shape"):
            attn_guard.xray(seeded(FusedQkv), features(width=2))

    def test_a_module_that_cannot_be_called(self) -> None:
        class Picky(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                raise RuntimeError("only ever at night")

        with pytest.raises(UsageError, match=r"Picky could not be called; pass args= .* only ever at night"):
            attn_guard.xray(Picky())
