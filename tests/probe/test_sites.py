"""The same anatomy, however attention is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.anatomy import Factor, Site, Size, Stage, StepKind
from tests.probe import modules, silent_modules
from tests.probe.modules import CAUSAL_STYLES, HEAD_DIM, STYLES, BuiltIn, D, H, Sdpa, features, later, seeded

RIGHT = HEAD_DIM**-0.5


def site(module: nn.Module, *args: Any, **kwargs: Any) -> Site:
    """The only site of a module on features (2, 5, D), or on what is given."""
    (found,) = attn_guard.xray(module, args or (features(),), kwargs).sites
    return found.site


def sites(module: nn.Module, *args: Any) -> list[Site]:
    return [found.site for found in attn_guard.xray(module, args or (features(),), {}).sites]


@pytest.mark.parametrize("style", STYLES)
def test_every_style_gives_the_same_site(style: str) -> None:
    found = site(seeded(STYLES[style]))
    assert found.sizes[Size.HEAD_DIM] == HEAD_DIM
    assert found.sizes[Size.KEYS] == 5
    assert found.sizes[Size.D_MODEL] == D
    assert found.scale is not None
    assert found.scale.is_right
    assert found.scale.value == pytest.approx(RIGHT)
    assert (found.cross, found.causal, found.normalised) == (False, False, False)
    assert found.find(StepKind.MASK) == ()
    assert found.scores is not None
    assert found.softmax is not None
    assert found.context is not None
    assert not any(step.scrambles for step in found.steps)


@pytest.mark.parametrize("style", CAUSAL_STYLES)
def test_every_style_shows_its_causal_mask(style: str) -> None:
    found = site(seeded(CAUSAL_STYLES[style]))
    (mask,) = found.find(StepKind.MASK)
    assert (mask.stage, mask.fill, mask.used) == (Stage.SCORES, -torch.inf, True)
    assert found.causal is True
    assert found.scale is not None
    assert found.scale.is_right


def test_steps_follow_the_flow() -> None:
    kinds = [step.kind for step in site(seeded(modules.FusedQkv, causal=True, dropout=0.1)).steps]
    core = [StepKind.SCORES, StepKind.SCALE, StepKind.MASK, StepKind.SOFTMAX, StepKind.CONTEXT, StepKind.MERGE]
    assert [kind for kind in kinds if kind in core] == core
    assert kinds.count(StepKind.PROJECTION) == 3
    assert kinds[-1] is StepKind.OUTPUT


def test_heads_are_counted() -> None:
    for style in ("fused qkv", "einsum", "baddbmm", "sdpa", "built-in"):
        assert site(seeded(STYLES[style])).sizes[Size.HEADS] == H


class TestScale:
    @pytest.mark.parametrize(
        ("factor", "size", "power"),
        [
            (D**-0.5, Size.D_MODEL, -0.5),
            (HEAD_DIM**-1, Size.HEAD_DIM, -1.0),
            (HEAD_DIM**0.5, Size.HEAD_DIM, 0.5),
            (5**-0.5, Size.KEYS, -0.5),
            (H**-0.5, Size.HEADS, -0.5),
            (RIGHT, Size.HEAD_DIM, -0.5),
        ],
    )
    def test_a_factor_is_named_by_the_size_it_matches(self, factor: float, size: Size, power: float) -> None:
        class Scaled(silent_modules.Core):
            def scores(self, q: Tensor, k: Tensor) -> Tensor:
                return q @ k.mT * factor

        scale = site(seeded(Scaled)).scale
        assert scale is not None
        assert (scale.size, scale.power) == (size, power)
        assert scale.value == pytest.approx(factor)

    @pytest.mark.parametrize(
        "product",
        [
            lambda q, k: (q * RIGHT) @ k.mT,
            lambda q, k: q @ (k * RIGHT).mT,
            lambda q, k: (q * 2) @ k.mT * (RIGHT / 2),
            lambda q, k: (q / HEAD_DIM**0.25) @ (k / HEAD_DIM**0.25).mT,
            lambda q, k: q @ k.mT / torch.tensor(HEAD_DIM).sqrt(),
            lambda q, k: (q @ k.mT).div_(HEAD_DIM**0.5),
            lambda q, k: torch.einsum("bhid,bhjd->bhij", q, k).mul(torch.full((1, 1, 1, 1), RIGHT)),
        ],
    )
    def test_every_place_of_the_scale(self, product: Callable[[Tensor, Tensor], Tensor]) -> None:
        class Scaled(silent_modules.Core):
            def scores(self, q: Tensor, k: Tensor) -> Tensor:
                return product(q, k)

        scale = site(seeded(Scaled)).scale
        assert scale is not None
        assert scale.is_right

    def test_none(self) -> None:
        class Unscaled(silent_modules.Core):
            def scores(self, q: Tensor, k: Tensor) -> Tensor:
                return q @ k.mT

        found = site(seeded(Unscaled))
        assert found.scale == Factor(value=1.0)
        assert not found.normalised

    @pytest.mark.parametrize(
        "build",
        [
            silent_modules.QkNorm,
            silent_modules.QkLayerNorm,
            silent_modules.HandWrittenNorm,
            silent_modules.Cosine,
            silent_modules.FixedCosine,
            silent_modules.Temperature,
            silent_modules.FoldedScale,
        ],
    )
    def test_bounded_in_another_way(self, build: Callable[[], nn.Module]) -> None:
        assert site(seeded(build)).normalised

    def test_stated_in_an_attribute(self) -> None:
        scale = site(seeded(silent_modules.StatedScalar)).scale
        assert scale is not None
        assert (scale.size, scale.text) == (None, "self.scaling")

    @pytest.mark.parametrize("build", [silent_modules.Rotary, silent_modules.RotaryPairs])
    def test_rotary_positions_are_no_factor(self, build: Callable[[], nn.Module]) -> None:
        found = site(seeded(build))
        assert found.scale is not None
        assert found.scale.is_right
        assert not found.normalised


class TestMasks:
    @pytest.mark.parametrize("form", ["bool", "float", "is_causal"])
    @pytest.mark.parametrize("key_heads", [1, 3])
    def test_sdpa(self, form: modules.MaskForm, key_heads: int) -> None:
        found = site(seeded(Sdpa, form, key_heads))
        assert [mask.fill for mask in found.find(StepKind.MASK)] == [-torch.inf]
        assert found.causal is True

    @pytest.mark.parametrize(("need_weights", "batch_first"), [(True, False), (False, True)])
    @pytest.mark.parametrize(
        ("mask", "padding"),
        [
            ("none", "none"),
            ("none", "bool"),
            ("none", "float"),
            ("bool", "none"),
            ("float", "float"),
            ("3-D bool", "bool"),
            ("3-D float", "none"),
        ],
    )
    def test_multihead_attention(self, need_weights: bool, batch_first: bool, mask: str, padding: str) -> None:
        module = seeded(lambda: nn.MultiheadAttention(D, H, batch_first=batch_first))
        x = features(2, 5) if batch_first else features(5, 2)
        hidden = later(5).expand(2 * H, 5, 5) if "3-D" in mask else later(5)
        pads = torch.zeros(2, 5, dtype=torch.bool).index_fill(1, torch.tensor([4]), True)
        found = site(
            module,
            x,
            x,
            x,
            attn_mask=None if mask == "none" else hidden if "bool" in mask else additive(hidden),
            key_padding_mask=None if padding == "none" else pads if padding == "bool" else additive(pads),
            need_weights=need_weights,
        )
        assert found.scale is not None
        assert found.scale.is_right
        assert found.cross is False
        assert found.causal is (mask != "none")
        fills = [step.fill for step in found.find(StepKind.MASK)]
        assert fills == ([] if mask == padding == "none" else [-torch.inf])
        assert found.name == ""

    @pytest.mark.parametrize(
        ("hide", "fill"),
        [
            (lambda s: s.masked_fill(later(s.shape[-1]), -1e9), -1e9),
            (lambda s: s.masked_fill_(later(s.shape[-1]), -torch.inf), -torch.inf),
            (lambda s: torch.where(later(s.shape[-1]), 1e-9, s), 1e-9),
            (lambda s: s + later(s.shape[-1]) * -1e4, -1e4),
            (lambda s: s * ~later(s.shape[-1]), 0.0),
            (lambda s: s - later(s.shape[-1]).float() * 10.0, -10.0),
        ],
    )
    def test_the_fill_is_read_off_the_numbers(self, hide: Callable[[Tensor], Tensor], fill: float) -> None:
        class Masked(silent_modules.Core):
            def hide(self, scores: Tensor) -> Tensor:
                return hide(scores)

        (mask,) = site(seeded(Masked)).find(StepKind.MASK)
        assert mask.fill == pytest.approx(fill)

    def test_a_dropped_mask_is_a_step_without_use(self) -> None:
        class Dropping(silent_modules.Core):
            def hide(self, scores: Tensor) -> Tensor:
                scores.masked_fill(later(scores.shape[-1]), -torch.inf)
                return scores

        found = site(seeded(Dropping))
        assert found.find(StepKind.MASK) == ()
        (dropped,) = found.dropped(StepKind.MASK)
        assert (dropped.stage, dropped.used) == (Stage.SCORES, False)

    def test_a_mask_after_the_softmax_is_a_step_of_the_weights(self) -> None:
        class Late(silent_modules.Encoder):
            def weigh(self, scores: Tensor) -> Tensor:
                return scores.softmax(-1).masked_fill(later(scores.shape[-1]), 0.0)

        (mask,) = site(seeded(Late)).find(StepKind.MASK)
        assert (mask.stage, mask.fill) == (Stage.WEIGHTS, 0.0)

    @pytest.mark.parametrize("build", [silent_modules.Alibi, silent_modules.RelativeTable])
    def test_a_bias_is_no_mask(self, build: Callable[[], nn.Module]) -> None:
        found = site(seeded(build))
        assert len(found.find(StepKind.MASK)) == 1
        assert found.find(StepKind.BIAS)


def additive(hidden: Tensor) -> Tensor:
    return torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)


class TestLayers:
    @pytest.mark.parametrize("norm_first", [True, False])
    @pytest.mark.parametrize("batch_first", [True, False])
    def test_encoder_layer(self, norm_first: bool, batch_first: bool) -> None:
        layer = seeded(lambda: nn.TransformerEncoderLayer(D, H, 11, batch_first=batch_first, norm_first=norm_first))
        found = site(layer)
        assert found.name == "self_attn"
        assert found.scale is not None
        assert found.scale.is_right
        assert found.cross is False

    def test_decoder_layer_has_self_and_cross_attention(self) -> None:
        layer = seeded(lambda: nn.TransformerDecoderLayer(D, H, 11, batch_first=True))
        x, memory = features(2, 5), features(2, 7, seed=1)
        found = [a.site for a in attn_guard.xray(layer, (x, memory), {"tgt_mask": later(5)}).sites]
        assert [part.name for part in found] == ["self_attn", "multihead_attn"]
        assert [part.cross for part in found] == [False, True]
        assert [part.causal for part in found] == [True, None]
        assert found[1].sizes[Size.KEYS] == 7

    def test_one_site_per_layer_under_its_module_path(self) -> None:
        model = seeded(modules.Decoder, layers=3)
        assert [s.name for s in sites(model, torch.ones(2, 5, dtype=torch.long))] == [
            f"blocks.{layer}.attn" for layer in range(3)
        ]

    def test_a_wrapped_built_in_has_the_path_of_the_built_in(self) -> None:
        assert site(seeded(BuiltIn)).name == "attention"

    def test_cross_attention(self) -> None:
        found = site(seeded(modules.CrossAttention), features(2, 5), features(2, 7))
        assert (found.cross, found.causal) == (True, None)
        assert found.sizes[Size.KEYS] == 7


@pytest.mark.parametrize(
    "build", [modules.Additive, modules.LinearAttention, modules.Classifier, modules.Router, nn.Identity]
)
def test_softmax_that_is_no_attention(build: Callable[[], nn.Module]) -> None:
    assert sites(seeded(build)) == []


class TestLinesOfSteps:
    def test_each_step_stands_on_its_own_line(self) -> None:
        found = site(seeded(modules.FusedQkv, causal=True))
        text = Path(modules.__file__).read_text(encoding="utf-8").splitlines()
        expected = {
            StepKind.SCORES: "scores = q @ k",
            StepKind.SCALE: "math.sqrt",
            StepKind.MASK: "masked_fill",
            StepKind.SOFTMAX: "softmax",
            StepKind.CONTEXT: "@ v",
            StepKind.MERGE: "reshape",
            StepKind.OUTPUT: "self.out_proj",
        }
        for kind, fragment in expected.items():
            (step,) = found.find(kind)
            assert fragment in text[step.location.line - 1]
            assert step.location.path.endswith("modules.py")


def test_sdpa_called_directly_by_the_user() -> None:
    class Direct(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v)

    q, k, v = torch.randn(3, 2, 3, 5, 7, generator=torch.Generator().manual_seed(0)).unbind(0)
    found = site(Direct(), q, k, v)
    assert found.scale is not None
    assert found.scale.is_right
    assert found.sizes[Size.HEAD_DIM] == 7


class EarlierScores(nn.Module):
    """Two layers, the second of which adds the first one's scores to its own (He et al. 2021, RealFormer)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(D, 3 * D) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        earlier = x.new_zeros(())
        for layer in (self.first, self.second):
            q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in layer(x).chunk(3, -1))
            earlier = earlier + q @ k.mT * HEAD_DIM**-0.5
            x = x + (earlier.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return x


def test_scores_of_an_earlier_layer_are_not_those_of_the_next() -> None:
    first, second = (anatomy.trace for anatomy in attn_guard.xray(seeded(EarlierScores), features()).sites)
    assert first.terms == 1
    assert second.terms == 2
    assert second.scores.index > first.context.index
    assert second.query_projection is not None
    assert second.query_projection.weight != (first.query_projection and first.query_projection.weight)


def test_attention_without_any_key_is_none() -> None:
    class Split(nn.Module):
        """The first positions attend to the others, of which there may be none."""

        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x[:, :3], x[:, 3:], x[:, 3:])

    assert sites(Split(), torch.randn(2, 3, 7)) == []
