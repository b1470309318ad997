"""Causality is seen whatever a module takes: ids, one sequence, time before batch, a memory beside; images have
none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Severity
from tests.probe.modules import HEAD_DIM, Block, D, Decoder, FusedQkv, H, later, seeded
from tests.probe.silent_modules import ImageHeads


def codes(module: nn.Module, *args: Any, **promises: Any) -> list[str]:
    return [found.code for found in attn_guard.check(module, args or None, **promises) if found.fails]


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


class Attention(nn.Module):
    """Attention over the last but one axis, whatever stands before it: (..., time, D)."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.triangular = causal
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (H, HEAD_DIM)).transpose(-3, -2) for part in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT * HEAD_DIM**-0.5
        if self.triangular:
            scores = scores.masked_fill(later(x.shape[-2]), -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(-3, -2).flatten(-2))


class OfIds(nn.Module):
    """Ids (..., time) → logits."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(29, D), Attention(causal), nn.Linear(D, 29)

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layer(self.embed(ids)))
        return logits


class TimeFirst(nn.Module):
    """(time, batch, D)."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.layer = Attention(causal)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x.transpose(0, 1)).transpose(0, 1)
        return y


RIGHT_OR_NOT = pytest.mark.parametrize("causal", [True, False])


@RIGHT_OR_NOT
@pytest.mark.parametrize("shape", [(5, D), (1, 5, D), (2, 5, D)])
def test_features(shape: tuple[int, ...], causal: bool) -> None:
    assert codes(seeded(Attention, causal), drawn(*shape), causal=True) == ([] if causal else ["ATN214"])


@RIGHT_OR_NOT
@pytest.mark.parametrize("shape", [(5,), (1, 5), (2, 5)])
def test_ids(shape: tuple[int, ...], causal: bool) -> None:
    ids = torch.randint(29, shape, generator=torch.Generator().manual_seed(0))
    assert codes(seeded(OfIds, causal), ids, causal=True) == ([] if causal else ["ATN214"])


@RIGHT_OR_NOT
def test_time_before_batch(causal: bool) -> None:
    expected = [] if causal else ["ATN214"]
    assert codes(seeded(TimeFirst, causal), drawn(5, 2, D), causal=True, batch_first=False) == expected


@RIGHT_OR_NOT
@pytest.mark.parametrize("batch_first", [True, False])
def test_the_built_in(causal: bool, batch_first: bool) -> None:
    layer = seeded(lambda: nn.MultiheadAttention(D, H, batch_first=batch_first))
    x = drawn(2, 5, D) if batch_first else drawn(5, 2, D)
    mask = later(5) if causal else None
    report = attn_guard.check(layer, (x, x, x), {"attn_mask": mask}, causal=True)
    assert [found.code for found in report if found.fails] == ([] if causal else ["ATN214"])


def test_an_image_has_no_order_in_time() -> None:
    assert codes(seeded(ImageHeads), drawn(2, 21, 3, 5), causal=True) == []


def test_channels_before_time_are_left_alone() -> None:
    class Channels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.layer = nn.Conv1d(D, D, 1), Attention(True)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(self.conv(x).mT).mT
            return y

    assert codes(seeded(Channels), drawn(2, D, 5), causal=True) == []


class Translator(nn.Module):
    """Source and target ids → logits of the target; the encoder looks both ways."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(29, D)
        self.encoder, self.decoder = Block(Attention(False)), Block(Attention(causal))
        self.cross = nn.MultiheadAttention(D, H, batch_first=True)
        self.head = nn.Linear(D, 29)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        memory, x = self.encoder(self.embed(src)), self.decoder(self.embed(tgt))
        logits: Tensor = self.head(x + self.cross(x, memory, memory)[0])
        return logits


class TestEncoderAndDecoder:
    @RIGHT_OR_NOT
    @pytest.mark.parametrize("source", [7, 5])
    def test_the_decoder_must_be_causal_and_the_encoder_not(self, causal: bool, source: int) -> None:
        src, tgt = torch.arange(2 * source).view(2, -1), torch.arange(10).view(2, 5)
        assert codes(seeded(Translator, causal), src, tgt, causal=True) == ([] if causal else ["ATN214"])

    def test_the_triangle_of_the_decoder_is_evidence(self) -> None:
        src, tgt = torch.arange(14).view(2, 7), torch.arange(10).view(2, 5)
        assert attn_guard.xray(seeded(Translator, True), (src, tgt)).contract.causal is True
        assert attn_guard.xray(seeded(Translator, False), (src, tgt)).contract.causal is None

    @RIGHT_OR_NOT
    def test_the_built_in(self, causal: bool) -> None:
        model = seeded(lambda: nn.Transformer(22, 2, 1, 1, 11, batch_first=True))
        mask = later(5) if causal else None
        report = attn_guard.check(model, (drawn(2, 7, 22), drawn(2, 5, 22)), {"tgt_mask": mask}, causal=True)
        assert [found.code for found in report if found.fails] == ([] if causal else ["ATN214"])


def test_a_mask_of_the_memory_says_nothing_about_a_target_of_the_same_length() -> None:
    model = seeded(lambda: nn.Transformer(22, 2, 1, 1, 11, batch_first=True))
    report = attn_guard.check(model, (drawn(3, 5, 22), drawn(3, 5, 22) + 1.0), {"tgt_mask": later(5)})
    assert report.ok, str(report)


class TestEvidence:
    """A name or a flag counts only where no mask of a parent may be missing."""

    def test_a_class_that_says_causal(self) -> None:
        class CausalAttention(Attention):
            pass

        (found,) = attn_guard.check(seeded(CausalAttention, False), (drawn(2, 5, D),))
        assert (found.code, found.severity) == ("ATN214", Severity.WARNING)

    @pytest.mark.parametrize("name", ["mask", "attention_mask", "attn_bias"])
    def test_a_mask_that_a_parent_would_hand_over(self, name: str) -> None:
        class CausalAttention(Attention):
            pass

        namespace: dict[str, Any] = {"Attention": Attention}
        exec(f"def forward(self, x, {name}=None):\n    return Attention.forward(self, x)", namespace)
        CausalAttention.forward = namespace["forward"]  # type: ignore[method-assign]
        module = seeded(CausalAttention, False)
        module.is_causal = True  # type: ignore[assignment]
        assert codes(module, drawn(2, 5, D)) == []
        assert codes(module, drawn(2, 5, D), causal=True) == ["ATN214"]

    @pytest.mark.parametrize("name", ["TinyGpt", "DecoderOnly"])
    def test_a_model_of_ids_that_is_called_a_decoder(self, name: str) -> None:
        model = seeded(type(name, (OfIds,), {}), False)
        ids = torch.arange(10).view(2, 5)
        (found,) = attn_guard.check(model, (ids,))
        assert (found.code, found.severity) == ("ATN214", Severity.WARNING)

    def test_a_decoder_of_features_may_look_both_ways(self) -> None:
        module = seeded(type("MaskDecoder", (Attention,), {}), False)
        assert codes(module, drawn(2, 5, D)) == []

    def test_is_decoder(self) -> None:
        model = seeded(OfIds, False)
        model.is_decoder = True  # type: ignore[assignment]
        report = attn_guard.check(model, (torch.arange(10).view(2, 5),))
        assert report.codes == {"ATN214": 1}
        assert "causal: is_decoder is True" in report.assumptions

    def test_right_models_stay_quiet(self) -> None:
        assert codes(seeded(Decoder)) == []
        assert codes(seeded(FusedQkv)) == []
