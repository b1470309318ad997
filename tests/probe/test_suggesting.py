"""Calls for signatures as libraries write them: rotary tables, memories of another width, windows, flat sequences."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.anatomy import Site, Size
from attn_guard.contract import Contract
from attn_guard.probe.dimensions import key_widths
from attn_guard.probe.suggesting import suggested
from tests.probe.modules import HEAD_DIM, D, H, seeded
from tests.probe.silent_modules import Parts

EVEN, EVEN_HEADS = 24, 4  # rotary positions turn pairs of columns


def one_site(module: nn.Module, **promises: Any) -> Site:
    report = attn_guard.check(module, **promises)
    assert list(report) == [], str(report)
    (site,) = report.sites
    return site


class Rotary(nn.Module):
    """Attention whose queries and keys are turned by tables that come in."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = EVEN_HEADS
        self.qkv, self.out = nn.Linear(EVEN, 3 * EVEN), nn.Linear(EVEN, EVEN)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).unflatten(-1, (3, EVEN_HEADS, -1)).unbind(-3)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        context = F.scaled_dot_product_attention(q, k, v)
        return self.out(context.transpose(1, 2).flatten(2))


def turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class Halves(Rotary):
    def forward(self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor] | None = None) -> Tensor:
        q, k, v = self.parts(hidden_states)
        cosine, sine = position_embeddings  # type: ignore[misc]
        return self.attend(turned(q, cosine, sine), turned(k, cosine, sine), v)


class Separate(Rotary):
    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = self.parts(x)
        return self.attend(turned(q, cos, sin), turned(k, cos, sin), v)


class Complex(Rotary):
    def forward(self, x: Tensor, start_pos: int, freqs_cis: Tensor, mask: Tensor | None) -> Tensor:
        assert (start_pos, mask) == (0, None)
        q, k, v = self.parts(x)
        q, k = (
            torch.view_as_real(torch.view_as_complex(part.reshape(*part.shape[:-1], -1, 2)) * freqs_cis).flatten(3)
            for part in (q, k)
        )
        return self.attend(q, k, v)


class Optional(Rotary):
    """The tables may be left out."""

    def forward(self, x: Tensor, freqs_cis: Tensor | None = None) -> Tensor:
        assert freqs_cis is None
        return self.attend(*self.parts(x))


@pytest.mark.parametrize("build", [Halves, Separate, Complex, Optional])
def test_rotary_tables(build: type[nn.Module]) -> None:
    assert one_site(seeded(build)).sizes[Size.HEADS] == EVEN_HEADS


class TestMemory:
    def test_key_and_value_widths_of_the_built_in_layer(self) -> None:
        module = nn.MultiheadAttention(D, H, kdim=13, vdim=17, batch_first=True)
        assert key_widths(module) == (13, 17)
        assert one_site(module).cross is True

    @pytest.mark.parametrize("batch_first", [True, False])
    def test_one_of_them_alone(self, batch_first: bool) -> None:
        for widths in ({"kdim": 13}, {"vdim": 17}):
            report = attn_guard.check(nn.MultiheadAttention(D, H, **widths, batch_first=batch_first))
            assert list(report) == [], str(report)
            assert len(report.sites) == 1

    @pytest.mark.parametrize("name", ["context", "encoder_hidden_states", "memory"])
    def test_a_memory_of_another_width_that_may_be_left_out(self, name: str) -> None:
        class Cross(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.to_q, self.to_k, self.to_v = nn.Linear(D, D), nn.Linear(13, D), nn.Linear(13, D)
                self.to_out = nn.Linear(D, D)

            def attend(self, x: Tensor, context: Tensor) -> Tensor:
                q, k, v = (
                    part.unflatten(-1, (H, -1)).transpose(1, 2)
                    for part in (self.to_q(x), self.to_k(context), self.to_v(context))
                )
                return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

        namespace: dict[str, Any] = {}
        exec(f"def forward(self, x, {name}=None): return self.attend(x, x if {name} is None else {name})", namespace)
        module = seeded(type("Named", (Cross,), {"forward": namespace["forward"]}))
        assert key_widths(module) == (13, 13)
        assert one_site(module).cross is True

    def test_widths_that_agree(self) -> None:
        assert key_widths(nn.MultiheadAttention(D, H)) is None
        assert key_widths(Parts()) is None


class TestForms:
    def test_windows_of_the_length_that_the_table_is_made_for(self) -> None:
        class Window(Parts):
            table: Tensor
            relative_position_index: Tensor

            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("relative_position_index", torch.arange(9)[None] - torch.arange(9)[:, None] + 8)
                self.bias = nn.Parameter(torch.randn(17, H))

            def forward(self, x: Tensor) -> Tensor:
                q, k, v = self.heads(x)
                bias = self.bias[self.relative_position_index].permute(2, 0, 1)
                return self.merge((self.scores(q, k) + bias).softmax(-1) @ v)

        assert one_site(seeded(Window)).sizes[Size.KEYS] == 9

    def test_samples_one_after_another(self) -> None:
        class Flat(Parts):
            def forward(self, hidden_states: Tensor, cu_seqlens: Tensor) -> Tensor:
                pieces = torch.split(hidden_states, (cu_seqlens[1:] - cu_seqlens[:-1]).tolist())
                parts = [self.heads(piece[None]) for piece in pieces]
                return torch.cat([self.merge(self.scores(q, k).softmax(-1) @ v)[0] for q, k, v in parts])

        report = attn_guard.check(seeded(Flat))
        assert list(report) == [], str(report)
        assert [site.sizes[Size.KEYS] for site in report.sites] == [2, 3]

    def test_a_bias_for_every_key(self) -> None:
        class Alibi(Parts):
            num_heads = H

            def forward(self, x: Tensor, residual: Tensor, alibi: Tensor, use_cache: bool) -> Tensor:
                assert use_cache is False
                q, k, v = self.heads(x)
                weights = (self.scores(q, k) + alibi.view(-1, H, 1, x.shape[1])).softmax(-1)
                return self.merge(weights @ v) + residual

        one_site(seeded(Alibi))

    def test_height_and_width_of_the_picture_that_the_positions_are(self) -> None:
        class Pixels(Parts):
            def forward(self, x: Tensor, H: int, W: int) -> Tensor:  # noqa: N803
                assert x.shape[1] == H * W
                q, k, v = self.heads(x)
                return self.merge(self.scores(q, k).softmax(-1) @ v)

        one_site(seeded(Pixels))


class Patches(nn.Module):
    """Attention over the patches of an image, with learned positions for one size of image only."""

    def __init__(self, cut: nn.Module, patches: int, **stated: Any) -> None:
        super().__init__()
        self.cut = cut
        self.pos_embed = nn.Parameter(torch.randn(1, patches + 1, D))
        self.first = nn.Parameter(torch.randn(1, 1, D))
        self.attention = nn.MultiheadAttention(D, H, batch_first=True)
        for name, value in stated.items():
            setattr(self, name, value)

    def attend(self, patches: Tensor) -> Tensor:
        x = torch.cat((self.first.expand(patches.shape[0], -1, -1), patches), dim=1) + self.pos_embed
        output: Tensor = self.attention(x, x, x)[0]
        return output


class Convolved(Patches):
    def forward(self, image: Tensor) -> Tensor:
        return self.attend(self.cut(image).flatten(2).mT)


class Rearranged(Patches):
    def forward(self, img: Tensor) -> Tensor:
        return self.attend(self.cut(F.unfold(img, 4, stride=4).mT))


class TestPictures:
    @pytest.mark.parametrize("stated", [{}, {"img_size": 20}, {"config": SimpleNamespace(image_size=20)}])
    def test_of_the_size_that_is_stated_or_that_the_positions_tell(self, stated: dict[str, Any]) -> None:
        module = seeded(Convolved, nn.Conv2d(3, D, 4, stride=4), 25, **stated)
        assert one_site(module).sizes[Size.KEYS] == 26

    def test_of_a_stated_height_and_width(self) -> None:
        module = seeded(Convolved, nn.Conv2d(1, D, 4, stride=4), 15, image_size=(12, 20))
        assert one_site(module).sizes[Size.KEYS] == 16

    def test_patches_cut_before_a_linear_layer(self) -> None:
        module = seeded(Rearranged, nn.Linear(3 * 4 * 4, D), 9)
        assert one_site(module).sizes[Size.KEYS] == 10

    @pytest.mark.slow
    @pytest.mark.parametrize("family", ["vit", "clip_vision_model", "wav2vec2", "whisper"])
    def test_models_of_transformers(self, family: str) -> None:
        pytest.importorskip("transformers")
        from tests.zoo.models import example

        model = example(family).model
        report = attn_guard.check(model)
        assert report.ok, str(report)
        assert report.sites


def test_plain_calls_come_first() -> None:
    first, *_ = suggested(Optional(), Contract())
    assert len(first.args) == 1
    assert first.kwargs == {}


def test_columns_of_a_head() -> None:
    cosine, _ = next(iter(suggested(Separate(), Contract()))).args[1:]
    assert cosine.shape[-1] == EVEN // EVEN_HEADS
    assert HEAD_DIM % 2 == 1
