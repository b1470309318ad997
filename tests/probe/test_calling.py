"""Calls for modules that nobody described: signatures, widths, masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.anatomy import Size
from attn_guard.contract import Contract
from attn_guard.probe.calling import as_mask, bound, given, known_meaning
from attn_guard.probe.dimensions import heads_of, is_batch_first
from attn_guard.probe.suggesting import suggested
from tests.probe.modules import HEAD_DIM, CrossAttention, D, Decoder, FusedQkv, H, features, seeded
from tests.probe.silent_modules import Encoder, ImageHeads, Parts, PixelAttention


class Recording(Parts):
    """Self- or cross-attention without a mask; each test gives it a signature."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(-1, (H, HEAD_DIM)).transpose(1, 2) for part, x in ((self.q, q), (self.k, k), (self.v, v))
        )
        return self.merge(self.scores(q, k).softmax(-1) @ v)


def one_site(module: nn.Module, **promises: Any) -> Any:
    report = attn_guard.check(module, **promises)
    assert list(report) == [], str(report)
    (site,) = report.sites
    return site


class TestSignatures:
    def test_x(self) -> None:
        assert one_site(seeded(FusedQkv)).cross is False

    def test_query_key_value_are_one_tensor(self) -> None:
        class Split(Recording):
            def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
                assert query is key is value
                return self.attend(query, key, value)

        assert one_site(seeded(Split)).cross is False

    def test_query_key_value_of_declared_cross_attention(self) -> None:
        class Split(Recording):
            def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
                assert query is not key
                assert key is value
                return self.attend(query, key, value)

        assert one_site(seeded(Split), cross=True).cross is True

    @pytest.mark.parametrize("name", ["memory", "context", "encoder_hidden_states"])
    def test_memory_by_any_name(self, name: str) -> None:
        namespace: dict[str, Any] = {"CrossAttention": CrossAttention}
        exec(f"def forward(self, x, {name}): return CrossAttention.forward(self, x, {name})", namespace)
        module = seeded(type("Cross", (CrossAttention,), {"forward": namespace["forward"]}))
        assert one_site(module).cross is True

    def test_an_undeclared_mask_is_left_out_first(self) -> None:
        class Masked(Recording):
            def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
                assert mask is None
                return self.attend(x, x, x)

        one_site(seeded(Masked))

    @pytest.mark.parametrize("square", [False, True])
    def test_an_undeclared_mask_that_is_needed_is_open(self, square: bool) -> None:
        class Masked(Recording):
            def forward(self, x: Tensor, mask: Tensor) -> Tensor:
                assert mask.dtype is torch.bool
                assert mask.all()
                assert mask.shape == ((x.shape[1], x.shape[1]) if square else x.shape[:2])
                return self.attend(x, x, x)

        one_site(seeded(Masked))

    def test_source_and_target(self) -> None:
        class Translator(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Transformer(22, 2, 1, 1, 11, batch_first=True)

            def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
                assert src.shape[1] != tgt.shape[1]
                decoded: Tensor = self.layer(src, tgt)
                return decoded

        report = attn_guard.check(seeded(Translator))
        assert report.ok
        assert [site.cross for site in report.sites] == [False, False, True]

    def test_hidden_states_and_optional_parameters(self) -> None:
        class Optional(Recording):
            def forward(
                self, hidden_states: Tensor, attention_mask: Tensor | None = None, output_attentions: bool = False
            ) -> tuple[Tensor, None]:
                assert attention_mask is None
                assert output_attentions is False
                return self.attend(hidden_states, hidden_states, hidden_states), None

        one_site(seeded(Optional))

    @pytest.mark.parametrize("name", ["input_ids", "x"])
    def test_ids_where_there_is_an_embedding(self, name: str) -> None:
        namespace: dict[str, Any] = {"Decoder": Decoder}
        exec(f"def forward(self, {name}): return Decoder.forward(self, {name})", namespace)
        model = seeded(type("Named", (Decoder,), {"forward": namespace["forward"]}))
        report = attn_guard.check(model)
        assert report.ok
        assert len(report.sites) == 2

    def test_star_args(self) -> None:
        class Starred(Recording):
            def forward(self, *args: Tensor) -> Tensor:
                return self.attend(args[0], args[0], args[0])

        one_site(seeded(Starred))

    def test_everything_optional(self) -> None:
        class Lazy(Recording):
            def forward(self, x: Tensor | None = None) -> Tensor:
                assert x is not None
                return self.attend(x, x, x)

        one_site(seeded(Lazy))

    def test_keyword_only(self) -> None:
        class Named(Recording):
            def forward(self, *, x: Tensor) -> Tensor:
                return self.attend(x, x, x)

        one_site(seeded(Named))

    def test_no_parameters_at_all(self) -> None:
        class Plain(nn.Module):
            def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
                scores = query @ key.mT / query.shape[-1] ** 0.5
                return scores.softmax(-1) @ value

        assert attn_guard.check(Plain()).ok


class TestDeclaredMasks:
    @pytest.mark.parametrize(
        ("meaning", "dtype", "open_value"),
        [("ignore", torch.bool, False), ("attend", torch.bool, True), ("additive", torch.float32, 0.0)],
    )
    def test_an_open_mask_of_the_promised_form(self, meaning: Any, dtype: torch.dtype, open_value: object) -> None:
        first: list[Tensor] = []

        class Masked(Recording):
            def forward(self, x: Tensor, pads: Tensor) -> Tensor:
                first.append(pads)
                assert pads.shape == x.shape[:2]
                return self.attend(x, x, x)

        attn_guard.check(seeded(Masked), masks={"pads": meaning})
        assert first[0].dtype is dtype
        assert set(first[0].flatten().tolist()) == {open_value}

    def test_as_mask(self) -> None:
        keep = torch.tensor([[True, False]])
        assert as_mask(keep, "ignore", torch.float32).tolist() == [[False, True]]
        assert as_mask(keep, "attend", torch.float32).tolist() == [[True, False]]
        added = as_mask(keep, "additive", torch.float16)
        assert added.dtype is torch.float16
        assert added.tolist() == [[0.0, -torch.inf]]

    @pytest.mark.parametrize(
        ("name", "meaning"),
        [
            ("key_padding_mask", "ignore"),
            ("src_key_padding_mask", "ignore"),
            ("attn_mask", None),
            ("mask", None),
            ("attention_mask", None),
        ],
    )
    def test_known_meaning(self, name: str, meaning: str | None) -> None:
        assert known_meaning(name) == meaning


class TestSizes:
    @pytest.mark.parametrize("heads", [1, 2, 3, 5, 7, 11])
    def test_no_two_sizes_coincide(self, heads: int) -> None:
        module = FusedQkv(width=heads * 4, heads=heads)
        call = next(suggested(module, Contract()))
        batch, time, width = call.args[0].shape
        assert width == heads * 4
        assert len({batch, time, heads}) == 3

    def test_memory_is_of_another_length(self) -> None:
        call = next(suggested(CrossAttention(), Contract()))
        x, memory = call.args
        assert x.shape[1] != memory.shape[1]
        assert x.shape[0] == memory.shape[0]

    def test_the_dtype_of_the_module(self) -> None:
        call = next(suggested(FusedQkv().to(torch.bfloat16), Contract()))
        assert call.args[0].dtype is torch.bfloat16

    def test_the_same_seed_gives_the_same_numbers(self) -> None:
        first, second, third = (next(suggested(FusedQkv(), Contract(), seed)).args[0] for seed in (0, 0, 1))
        assert torch.equal(first, second)
        assert not torch.equal(first, third)

    def test_the_global_random_stream_is_not_used(self) -> None:
        module = FusedQkv()
        before = torch.get_rng_state()
        list(suggested(module, Contract()))
        assert torch.equal(before, torch.get_rng_state())

    @pytest.mark.parametrize("name", ["num_heads", "heads", "n_head", "nhead"])
    def test_heads_by_any_name(self, name: str) -> None:
        module = nn.Module()
        setattr(module, name, 5)
        assert heads_of(module) == 5

    def test_no_heads(self) -> None:
        assert heads_of(nn.Linear(2, 2)) == 1


class TestBatchFirst:
    def test_as_declared(self) -> None:
        assert is_batch_first(FusedQkv(), Contract(batch_first=False)) is False

    @pytest.mark.parametrize("batch_first", [True, False])
    def test_as_torch_layers_state_it(self, batch_first: bool) -> None:
        layer = nn.TransformerEncoderLayer(D, H, 11, batch_first=batch_first)
        assert is_batch_first(layer, Contract()) is batch_first

    def test_by_default(self) -> None:
        assert is_batch_first(FusedQkv(), Contract()) is True

    @pytest.mark.parametrize("batch_first", [True, False])
    def test_torch_layers_called_by_themselves_are_clean(self, batch_first: bool) -> None:
        for layer in (
            nn.MultiheadAttention(D, H, batch_first=batch_first),
            nn.TransformerEncoderLayer(D, H, 11, batch_first=batch_first),
            nn.TransformerDecoderLayer(D, H, 11, batch_first=batch_first),
        ):
            report = attn_guard.check(layer.eval())
            assert list(report) == [], str(report)
            assert report.sites


class TestGiven:
    def test_forms(self) -> None:
        x = features()
        for args in (x, (x,), [x]):
            call = given(args, None, Contract(), FusedQkv())
            assert call.args == (x,)
        assert given(None, {"x": x}, Contract(), FusedQkv()).kwargs == {"x": x}

    def test_names(self) -> None:
        x, memory = features(), features(time=7)
        call = given((x,), {"memory": memory}, Contract(), CrossAttention())
        assert call.names(CrossAttention()) == {id(x): "x", id(memory): "memory"}

    def test_with_argument(self) -> None:
        x, memory, other = features(), features(time=7), features(time=3)
        module = CrossAttention()
        by_place = given((x, memory), None, Contract(), module).with_argument(module, "memory", other)
        assert by_place.args == (x, other)
        by_name = given((x,), {"memory": memory}, Contract(), module).with_argument(module, "memory", other)
        assert (by_name.args, by_name.kwargs) == ((x,), {"memory": other})

    def test_bound(self) -> None:
        x = features()
        assert bound(FusedQkv(), given(x, None, Contract(), FusedQkv())) == {"x": x}
        assert bound(FusedQkv(), given((x, x), None, Contract(), FusedQkv())) == {"0": x, "1": x}

    def test_shown(self) -> None:
        call = given((features(), None), {"flag": True, "other": object()}, Contract(), FusedQkv())
        assert str(call) == "(float32[2, 5, 21], None, flag=True, other=object)"


class TestImages:
    @pytest.mark.parametrize("build", [PixelAttention, ImageHeads])
    def test_a_convolution_at_the_front_takes_images(self, build: type[nn.Module]) -> None:
        site = one_site(seeded(build))
        assert site.sizes[Size.KEYS] == 24

    def test_patches(self) -> None:
        class Patches(Encoder):
            def __init__(self) -> None:
                super().__init__()
                self.cut = nn.Conv2d(3, D, 2, stride=2)

            def forward(self, image: Tensor) -> Tensor:
                return super().forward(self.cut(image).flatten(2).mT)

        module = seeded(Patches)
        report = attn_guard.check(module, torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(0)))
        assert list(report) == [], str(report)
        assert len(report.sites) == 1


def test_a_module_that_takes_one_length_only_is_checked_on_that() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(14, 2, batch_first=True)
            self.positions = nn.Parameter(torch.randn(70, 14))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.positions
            output: Tensor = self.attention(x, x, x)[0]
            return output

    report = attn_guard.check(Fixed(), torch.randn(1, 70, 14), causal=True)
    assert [finding.code for finding in report] == ["ATN214"]
    assert "float32[1, 70, 14]" in report.findings[0].reproduce
