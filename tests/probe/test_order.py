"""Order in time: masks that are off by one, start at the wrong corner, or are there against the contract."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Finding, Severity
from tests.probe.modules import CAUSAL_STYLES, HEAD_DIM, STYLES, CrossAttention, D, H, features, later, seeded
from tests.probe.silent_modules import Core, Encoder, Parts, PreallocatedCache


def failing(module: nn.Module, *args: Any, **promises: Any) -> list[Finding]:
    return [found for found in attn_guard.check(module, args or None, **promises) if found.fails]


def codes(module: nn.Module, *args: Any, **promises: Any) -> list[str]:
    return [found.code for found in failing(module, *args, **promises)]


class Triangle(Core):
    """A triangle of any diagonal, put on in one of several ways."""

    def __init__(self, diagonal: int, way: str) -> None:
        super().__init__()
        self.diagonal, self.way = diagonal, way

    def hide(self, scores: Tensor) -> Tensor:
        time = scores.shape[-1]
        hidden = torch.ones(time, time, dtype=torch.bool).triu(self.diagonal)
        if self.way == "fill":
            return scores.masked_fill(hidden, -torch.inf)
        if self.way == "finite":
            return scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        if self.way == "where":
            return torch.where(hidden, -torch.inf, scores)
        return scores + torch.zeros(time, time).masked_fill(hidden, -1e9)


class Sdpa(Parts):
    def __init__(self, diagonal: int, is_float: bool) -> None:
        super().__init__()
        self.diagonal, self.is_float = diagonal, is_float

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(self.diagonal)
        mask = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf) if self.is_float else ~hidden
        return self.merge(F.scaled_dot_product_attention(*self.heads(x), attn_mask=mask))


WAYS = ["fill", "finite", "where", "add"]


class TestOffset:
    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("diagonal", [0, 2])
    def test_by_hand(self, diagonal: int, way: str) -> None:
        (found,) = failing(seeded(Triangle, diagonal, way), causal=True)
        assert (found.code, found.severity) == ("ATN215", Severity.ERROR)
        assert ("ATN214" in found.consequences) is (diagonal == 2 or way in ("finite", "add"))

    @pytest.mark.parametrize("is_float", [True, False])
    @pytest.mark.parametrize("diagonal", [0, 2])
    def test_by_the_built_in(self, diagonal: int, is_float: bool) -> None:
        assert codes(seeded(Sdpa, diagonal, is_float), causal=True) == ["ATN215"]

    @pytest.mark.parametrize("way", WAYS)
    def test_the_right_diagonal(self, way: str) -> None:
        assert codes(seeded(Triangle, 1, way), causal=True) == []

    @pytest.mark.parametrize("diagonal", [0, 2])
    def test_a_triangle_is_evidence_enough_for_a_warning(self, diagonal: int) -> None:
        (found,) = failing(seeded(Triangle, diagonal, "fill"))
        assert (found.code, found.severity) == ("ATN215", Severity.WARNING)

    def test_two_steps_ahead_is_a_leak_like_any_other(self) -> None:
        assert codes(seeded(Triangle, 3, "fill"), causal=True) == ["ATN214"]

    def test_what_is_seen_is_drawn(self) -> None:
        (found,) = failing(seeded(Triangle, 2, "fill"), features(time=4), causal=True)
        assert found.leak_map == ((1, 2, 0, 0), (1, 1, 2, 0), (1, 1, 1, 2), (1, 1, 1, 1))

    @pytest.mark.parametrize("style", CAUSAL_STYLES)
    def test_every_right_style(self, style: str) -> None:
        assert codes(seeded(CAUSAL_STYLES[style]), causal=True) == []


class StrictlyPast(Core):
    """Sees what comes before only, on purpose; the first row is zeroed (as in autoregressive image models)."""

    def hide(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(later(scores.shape[-1]) | torch.eye(scores.shape[-1]).bool(), -1e9)

    def weigh(self, scores: Tensor) -> Tensor:
        some = torch.ones(scores.shape[-1], 1)
        some[0] = 0.0
        return scores.softmax(dim=-1) * some.expand(scores.shape[-2:])


class SharedQkThatAvoidsItself(Core):
    """A position sees itself only where there is nothing else (Kitaev et al. 2020)."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        scores = super().scores(q, k)
        return scores.masked_fill(torch.eye(scores.shape[-1]).bool(), -1e5)

    def hide(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(later(scores.shape[-1]), -1e9)


class PastAndSink(Core):
    """The own key is hidden, but there is a learned one that every query sees."""

    def __init__(self) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.randn(2, H, 1, HEAD_DIM))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        sinks = self.sink[:, None].expand(-1, len(x), -1, -1, -1)
        k, v = torch.cat((sinks[0], k), dim=2), torch.cat((sinks[1], v), dim=2)
        hidden = torch.ones(x.shape[1], k.shape[2], dtype=torch.bool).triu(1)
        return self.merge(self.scores(q, k).masked_fill(hidden, -torch.inf).softmax(-1) @ v)


@pytest.mark.parametrize("build", [StrictlyPast, SharedQkThatAvoidsItself])
@pytest.mark.parametrize("causal", [True, None])
def test_leaving_out_the_own_key_on_purpose(build: type[nn.Module], causal: bool | None) -> None:
    assert codes(seeded(build), causal=causal) == []


class Cached(Parts):
    """Keys and values of the past come first; the mask is one of several triangles."""

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: Tensor, past: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        ones = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        if self.mask == "is_causal":
            return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        keep = ones.tril() if self.mask == "top left" else ones.tril(k.shape[2] - q.shape[2])
        return self.merge(self.scores(q, k).masked_fill(~keep, -torch.inf).softmax(-1) @ v)


def past(time: int, batch: int = 2) -> Tensor:
    return torch.randn(2, batch, H, time, HEAD_DIM, generator=torch.Generator().manual_seed(1))


class TestAlignment:
    @pytest.mark.parametrize("mask", ["is_causal", "top left"])
    @pytest.mark.parametrize(("queries", "kept"), [(5, 7), (1, 7), (1, 2), (3, 1)])
    @pytest.mark.parametrize("causal", [True, None])
    def test_top_left_beside_a_cache(self, mask: str, queries: int, kept: int, causal: bool | None) -> None:
        (found,) = failing(seeded(Cached, mask), features(time=queries), past(kept), causal=causal)
        assert (found.code, found.severity) == ("ATN216", Severity.ERROR)
        assert found.expected == f"query 0 sees {kept + 1} keys"
        assert len(found.leak_map) == queries
        assert len(found.leak_map[0]) == queries + kept

    @pytest.mark.parametrize(("queries", "kept"), [(5, 7), (1, 7), (3, 1)])
    def test_bottom_right_is_right(self, queries: int, kept: int) -> None:
        assert codes(seeded(Cached, "bottom right"), features(time=queries), past(kept), causal=True) == []

    @pytest.mark.parametrize("mask", ["is_causal", "top left", "bottom right"])
    def test_without_a_past_all_are_the_same(self, mask: str) -> None:
        assert codes(seeded(Cached, mask), causal=True) == []

    def test_a_cache_of_fixed_size_that_is_being_filled(self) -> None:
        class Filled(PreallocatedCache):
            """Reads all of its cache; what is not filled yet lies behind the triangle."""

            def forward(self, x: Tensor) -> Tensor:
                q, k, v = self.heads(x)
                batch, time = x.shape[:2]
                self.keys[:batch, :, :time] = k
                self.values[:batch, :, :time] = v
                keep = torch.ones(time, self.keys.shape[2], dtype=torch.bool).tril()
                scores = self.scores(q, self.keys[:batch]).masked_fill(~keep, -torch.inf)
                return self.merge(scores.softmax(-1) @ self.values[:batch])

        assert codes(seeded(Filled), features(), causal=True) == []

    def test_between_two_sequences_it_is_a_warning(self) -> None:
        (found,) = failing(seeded(CausalCross), features(), features(time=7, seed=1))
        assert (found.code, found.severity) == ("ATN216", Severity.WARNING)


class CausalCross(CrossAttention):
    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q = self.to_q(x).unflatten(-1, (H, -1)).transpose(1, 2)
        k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.to_kv(memory).chunk(2, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class TestUncalledFor:
    @pytest.mark.parametrize("style", CAUSAL_STYLES)
    def test_a_causal_module_declared_to_look_both_ways(self, style: str) -> None:
        (found,) = failing(seeded(CAUSAL_STYLES[style]), causal=False)
        assert (found.code, found.severity) == ("ATN217", Severity.ERROR)
        assert found.leak_map == tuple(tuple(int(key <= query) for key in range(5)) for query in range(5))

    @pytest.mark.parametrize("style", STYLES)
    def test_a_module_that_looks_both_ways(self, style: str) -> None:
        assert codes(seeded(STYLES[style]), causal=False) == []

    @pytest.mark.parametrize("style", CAUSAL_STYLES)
    def test_nothing_is_said_without_a_declaration(self, style: str) -> None:
        assert codes(seeded(CAUSAL_STYLES[style])) == []

    @pytest.mark.parametrize("time", [7, 5])
    def test_cross_attention(self, time: int) -> None:
        (found,) = failing(seeded(CausalCross), features(), features(time=time, seed=1), cross=True)
        assert found.code == "ATN217"

    def test_cross_attention_as_it_should_be(self) -> None:
        assert codes(seeded(CrossAttention), cross=True) == []

    def test_one_causal_layer_among_others_is_a_design(self) -> None:
        model = nn.Sequential(seeded(Core), seeded(Encoder))
        assert codes(model, causal=False) == []

    def test_a_decoder_layer_with_memory(self) -> None:
        layer = seeded(lambda: nn.TransformerDecoderLayer(D, H, 11, batch_first=True))
        call = {"tgt": features(), "memory": features(time=7), "tgt_mask": later(5)}
        assert attn_guard.check(layer, None, call, cross=True).ok


class TestOutsideAttention:
    class Leaking(Core):
        def __init__(self, way: str) -> None:
            super().__init__()
            self.way = way
            self.conv = nn.Conv1d(D, D, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            if self.way == "norm":
                x = F.layer_norm(x, x.shape[1:])
            elif self.way == "convolution":
                x = x + self.conv(x.mT).mT
            elif self.way == "shift":
                x = x + F.pad(x, (0, 0, 0, 1))[:, 1:]
            elif self.way == "mean":
                x = x + x.mean(dim=1, keepdim=True)
            y = super().forward(x)
            return y - y.mean(dim=1, keepdim=True) if self.way == "mean of outputs" else y

    @pytest.mark.parametrize("way", ["norm", "convolution", "shift", "mean", "mean of outputs"])
    @pytest.mark.parametrize(("causal", "severity"), [(True, Severity.ERROR), (None, Severity.WARNING)])
    def test_the_future_comes_in_by(self, way: str, causal: bool | None, severity: Severity) -> None:
        (found,) = failing(seeded(self.Leaking, way), causal=causal)
        assert (found.code, found.severity) == ("ATN405", severity)
        assert found.location.path.endswith("test_order.py")
        assert any(2 in row for row in found.leak_map)

    def test_nothing_comes_in(self) -> None:
        assert codes(seeded(self.Leaking, "not at all"), causal=True) == []

    def test_a_convolution_over_the_past(self) -> None:
        class Looking(Core):
            def __init__(self) -> None:
                super().__init__()
                self.conv = nn.Conv1d(D, D, 3)

            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x + self.conv(F.pad(x.mT, (2, 0))).mT)

        assert codes(seeded(Looking), causal=True) == []

    def test_without_any_attention_it_is_a_leak_like_any_other(self) -> None:
        class Mean(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return x + x.mean(dim=1, keepdim=True)

        assert codes(Mean(), features(), causal=True) == ["ATN214"]


class TestMaskAndIsCausal:
    class Both(Parts):
        def __init__(self, masked: bool, causal: bool, is_float: bool) -> None:
            super().__init__()
            self.masked, self.causal_too, self.is_float = masked, causal, is_float

        def forward(self, x: Tensor) -> Tensor:
            keep = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
            mask = torch.zeros(keep.shape) if self.is_float else keep
            q, k, v = self.heads(x)
            if self.causal_too:
                return self.merge(
                    F.scaled_dot_product_attention(q, k, v, mask if self.masked else None, is_causal=True)
                )
            return self.merge(F.scaled_dot_product_attention(q, k, v, mask if self.masked else None))

    @pytest.mark.parametrize("masked", [True, False])
    @pytest.mark.parametrize("causal", [True, False])
    @pytest.mark.parametrize("is_float", [True, False])
    def test_only_both_at_once(self, masked: bool, causal: bool, is_float: bool) -> None:
        found = codes(seeded(self.Both, masked, causal, is_float))
        assert found == (["ATN802"] if masked and causal else [])

    def test_the_rest_is_looked_at_with_both(self) -> None:
        report = attn_guard.check(seeded(self.Both, True, True, True), causal=True)
        assert report.codes == {"ATN802": 1}
        assert [site.causal for site in report.sites] == [True]

    @pytest.mark.parametrize("both", [True, False])
    def test_a_mask_that_the_call_left_out(self, both: bool) -> None:
        class Masked(Parts):
            def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
                q, k, v = self.heads(x)
                if mask is None:
                    return self.merge(F.scaled_dot_product_attention(q, k, v, is_causal=True))
                keep = mask[:, None, None] & torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
                return self.merge(F.scaled_dot_product_attention(q, k, v, keep, is_causal=both))

        found = codes(seeded(Masked), features(), causal=True, masks={"mask": "attend"})
        assert found == (["ATN802"] if both else [])

    def test_the_built_in_layers_say_both_and_pass_on_one(self) -> None:
        layer = seeded(lambda: nn.TransformerEncoderLayer(D, H, 11, batch_first=True))
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        report = attn_guard.check(layer, (features(),), {"src_mask": mask, "is_causal": True})
        assert report.ok, str(report)
