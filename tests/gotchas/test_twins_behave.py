"""Every broken twin has its fault and every fixed twin has it no more, measured with plain torch.

This is the ground truth that the two readers are held against, so nothing here asks attn-guard for an opinion.
"""

from __future__ import annotations

import difflib
import inspect
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.gotchas.twins import NAMES, build, marked_lines, namespace, source

BATCH, TIME = 3, 5
CAUSAL = ["atn201_mask_after_softmax", "atn203_weak_mask_fill", "atn214_causal_leak"]
PADDED = ["atn202_mask_without_effect", "atn205_mask_polarity", "atn212_padding_leak"]
UNMASKED = [
    "atn101_missing_scale",
    "atn102_wrong_scale",
    "atn301_indivisible_heads",
    "atn302_view_after_transpose",
    "atn303_head_split",
    "atn304_head_merge",
]
PLAIN = [*CAUSAL, *PADDED, *UNMASKED]  # called with x, and a padding mask at most
PADDING = torch.tensor(
    [
        [False, False, False, False, False],
        [True, False, False, True, False],
        [False, False, True, True, True],
    ]
)


@pytest.fixture(autouse=True)
def _quiet_and_repeatable() -> Iterator[None]:
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def width(module: nn.Module) -> int:
    """d_model, read from the first projection or built-in layer."""
    for part in module.modules():
        if isinstance(part, nn.MultiheadAttention):
            embed_dim: int = part.embed_dim
            return embed_dim
        if isinstance(part, nn.Linear):
            return part.in_features
    raise AssertionError("no projection")


def features(module: nn.Module, time: int = TIME) -> torch.Tensor:
    return torch.randn(BATCH, time, width(module))


def influence(module: nn.Module, x: torch.Tensor, **kwargs: Any) -> torch.Tensor:
    """(batch, time, time): whether the output at a row's position changes, in any bit, with the input at a column's."""
    before = module(x, **kwargs)
    columns = []
    for position in range(x.size(1)):
        changed = x.clone()
        changed[:, position] = torch.randn_like(changed[:, position])
        columns.append((module(changed, **kwargs) != before).any(dim=-1))
    return torch.stack(columns, dim=-1)


def attend(
    module: nn.Module, scale: float, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """The context of projected (batch, time, d_model) tensors under a given scale, merged."""
    heads: int = module.heads  # type: ignore[assignment]
    q, k, v = (part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in (query, key, value))
    return F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2).flatten(2)


def is_permutation_equivariant(module: nn.Module) -> bool:
    """Whether the outputs of an attention without mask or positions follow the order of its inputs."""
    x = features(module)
    order = torch.tensor([3, 0, 4, 1, 2])
    return torch.allclose(module(x[:, order]), module(x)[:, order], atol=1e-5)


class TestTwinsAsExamples:
    @pytest.mark.parametrize("name", NAMES)
    def test_a_broken_twin_marks_its_faulty_lines_with_its_own_code_only(self, name: str) -> None:
        assert set(marked_lines(source("broken", name)).values()) == {name[:6].upper()}

    @pytest.mark.parametrize("name", NAMES)
    def test_a_fixed_twin_marks_nothing(self, name: str) -> None:
        assert marked_lines(source("fixed", name)) == {}

    @pytest.mark.parametrize("name", NAMES)
    def test_twins_differ_in_a_few_lines(self, name: str) -> None:
        broken, fixed = (source(kind, name).read_text().splitlines() for kind in ("broken", "fixed"))
        changed = [line for line in difflib.ndiff(broken, fixed) if line[0] in "-+"]
        assert 0 < len(changed) <= 10
        assert max(len(broken), len(fixed)) <= 60

    @pytest.mark.parametrize("name", PLAIN)
    @pytest.mark.parametrize("kind", ["broken", "fixed"])
    def test_twins_take_x_and_the_mask_they_promise(self, kind: str, name: str) -> None:
        expected = ["x", "key_padding_mask"] if name in PADDED else ["x"]
        assert list(inspect.signature(build(kind, name).forward).parameters) == expected


class TestFixedTwinsKeepTheirPromises:
    @pytest.mark.parametrize("name", CAUSAL)
    def test_a_causal_twin_depends_on_every_earlier_position_and_on_no_later_one(self, name: str) -> None:
        module = build("fixed", name)
        staircase = torch.ones(TIME, TIME).tril().bool()
        assert torch.equal(influence(module, features(module)), staircase.expand(BATCH, TIME, TIME))

    @pytest.mark.parametrize("name", PADDED)
    def test_a_padded_twin_depends_on_every_real_position_and_on_no_padding(self, name: str) -> None:
        module = build("fixed", name)
        seen = influence(module, features(module), key_padding_mask=PADDING)
        for sample, padding in zip(seen, PADDING, strict=True):
            assert sample[~padding][:, ~padding].all()
            assert not sample[~padding][:, padding].any()

    @pytest.mark.parametrize("name", UNMASKED)
    def test_an_unmasked_twin_mixes_all_positions_and_knows_no_order(self, name: str) -> None:
        module = build("fixed", name)
        assert influence(module, features(module)).all()
        assert is_permutation_equivariant(module)

    @pytest.mark.parametrize("name", PLAIN)
    def test_samples_of_a_batch_do_not_touch_and_outputs_are_finite(self, name: str) -> None:
        module = build("fixed", name)
        x = features(module)
        masks = {"key_padding_mask": PADDING} if name in PADDED else {}
        together = module(x, **masks)
        assert together.shape == x.shape
        assert together.isfinite().all()
        for index in range(BATCH):
            one = slice(index, index + 1)
            alone = module(x[one], **{key: mask[one] for key, mask in masks.items()})
            torch.testing.assert_close(alone, together[one])

    @pytest.mark.parametrize("name", PLAIN)
    def test_gradients_reach_every_parameter(self, name: str) -> None:
        module = build("fixed", name)
        x = features(module)
        masks = {"key_padding_mask": PADDING} if name in PADDED else {}
        with torch.enable_grad():
            (module(x, **masks) * torch.randn_like(x)).sum().backward()
        for parameter, value in module.named_parameters():
            assert value.grad is not None, parameter
            assert value.grad.isfinite().all(), parameter
            assert value.grad.any(), parameter

    @pytest.mark.parametrize("name", [name for name in PLAIN if name != "atn212_padding_leak"])
    def test_a_width_that_does_not_divide_is_refused_in_words(self, name: str) -> None:
        build_of = type(build("fixed", name))
        with pytest.raises((ValueError, AssertionError), match=r"=10 does not divide by \w+=3"):
            build_of(10, 3)


class TestScale:
    @pytest.mark.parametrize(("kind", "scale"), [("broken", 1.0), ("fixed", 11**-0.5)])
    def test_atn101_without_and_with_the_scale(self, kind: str, scale: float) -> None:
        module: Any = build(kind, "atn101_missing_scale")
        x = features(module)
        context = attend(module, scale, *module.qkv(x).chunk(3, dim=-1))
        torch.testing.assert_close(module(x), module.out(context))

    @pytest.mark.parametrize(("kind", "scale"), [("broken", 21**-0.5), ("fixed", 7**-0.5)])
    def test_atn102_scaled_by_the_width_and_by_the_head(self, kind: str, scale: float) -> None:
        module: Any = build(kind, "atn102_wrong_scale")
        x = features(module)
        context = attend(module, scale, module.to_query(x), module.to_key(x), module.to_value(x))
        torch.testing.assert_close(module(x), module.to_output(context))

    def test_atn101_scores_have_the_variance_of_the_head_without_the_scale(self) -> None:
        query, key = torch.randn(2, 4096, 11)
        assert (query * key).sum(-1).var().item() == pytest.approx(11, rel=0.2)
        assert ((query * key).sum(-1) * 11**-0.5).var().item() == pytest.approx(1, rel=0.2)

    def test_atn102_with_one_head_hides(self) -> None:
        broken, fixed = (
            namespace(kind, "atn102_wrong_scale")["MultiHeadAttention"](7, 1) for kind in ("broken", "fixed")
        )
        fixed.load_state_dict(broken.state_dict())
        x = features(fixed)
        torch.testing.assert_close(broken(x), fixed(x))


class TestMasks:
    @pytest.mark.parametrize("name", CAUSAL)
    def test_a_broken_causal_twin_sees_the_future(self, name: str) -> None:
        module = build("broken", name)
        future = torch.ones(TIME, TIME).triu(1).bool()
        assert influence(module, features(module))[:, future].all()

    @pytest.mark.parametrize(("kind", "sums_to_one"), [("broken", False), ("fixed", True)])
    def test_atn201_row_sums(self, kind: str, sums_to_one: bool) -> None:
        module: Any = build(kind, "atn201_mask_after_softmax")
        width = module.proj.in_features
        module.qkv.weight[2 * width :] = 0.0
        module.qkv.weight[2 * width :, 0] = 1.0
        x = features(module)
        x[..., 0] = 1.0  # so that every value is 1, and the context is the sum of the weights
        sums: list[torch.Tensor] = []
        module.proj.register_forward_pre_hook(lambda _, inputs: sums.append(inputs[0]))
        module(x)
        assert bool((sums[0] - 1).abs().amax() < 1e-6) is sums_to_one
        assert torch.allclose(sums[0][:, -1], torch.ones(width))
        assert bool((sums[0][:, 0] < 0.9).all()) is not sums_to_one

    @pytest.mark.parametrize("name", ["atn202_mask_without_effect", "atn212_padding_leak"])
    def test_a_dropped_padding_mask_changes_no_bit(self, name: str) -> None:
        module = build("broken", name)
        x = features(module)
        nothing = torch.zeros_like(PADDING)
        assert torch.equal(module(x, key_padding_mask=PADDING), module(x, key_padding_mask=nothing))
        seen = influence(module, x, key_padding_mask=PADDING)
        assert seen[1, 1, 0]
        assert seen[2, 0, 4]

    def test_atn203_the_fill_is_no_mask_at_all(self) -> None:
        module: Any = build("broken", "atn203_weak_mask_fill")
        query, key = (module.split(projection(features(module))) for projection in (module.w_q, module.w_k))
        scores = query @ key.mT / 11**0.5
        future = torch.ones(TIME, TIME).triu(1).bool()
        weights = scores.masked_fill(future, -1e-9).softmax(-1)
        assert weights[..., future].min() > 0.05

    def test_atn205_upside_down(self) -> None:
        module = build("broken", "atn205_mask_polarity")
        seen = influence(module, features(module), key_padding_mask=PADDING)
        for sample, padding in zip(seen[1:], PADDING[1:], strict=True):
            itself = torch.eye(TIME).bool()  # a position always chooses by its own query
            assert not (sample & ~itself)[:, ~padding].any()
            assert sample[:, padding].all()


class TestLayout:
    def test_atn301_is_built_and_fails_at_the_marked_line_of_its_first_call(self) -> None:
        module = build("broken", "atn301_indivisible_heads")
        with pytest.raises(RuntimeError, match=r"shape '\[3, 5, 3, 3\]' is invalid for input of size 150") as raised:
            module(features(module))
        assert self.line_in_twin(raised.value) in marked_lines(source("broken", "atn301_indivisible_heads"))

    def test_atn302_raises_at_the_marked_line(self) -> None:
        module = build("broken", "atn302_view_after_transpose")
        with pytest.raises(RuntimeError, match="view size is not compatible") as raised:
            module(features(module))
        assert self.line_in_twin(raised.value) in marked_lines(source("broken", "atn302_view_after_transpose"))

    def test_atn302_hides_with_one_head_or_one_position(self) -> None:
        module = build("broken", "atn302_view_after_transpose")
        assert module(features(module, time=1)).isfinite().all()
        single = namespace("broken", "atn302_view_after_transpose")["Attention"](13, 1)
        assert single(features(single)).isfinite().all()

    @pytest.mark.parametrize("name", ["atn303_head_split", "atn304_head_merge"])
    def test_scrambled_positions_break_the_order(self, name: str) -> None:
        assert not is_permutation_equivariant(build("broken", name))

    @pytest.mark.parametrize("name", ["atn303_head_split", "atn304_head_merge"])
    def test_with_one_head_scrambling_hides(self, name: str) -> None:
        single = type(build("broken", name))(13, 1)
        assert is_permutation_equivariant(single)

    def test_atn303_a_head_holds_fragments_of_other_positions(self) -> None:
        module: Any = build("broken", "atn303_head_split")
        x = torch.arange(TIME).repeat_interleave(14).view(1, TIME, 14)
        assert module._split_heads(x)[0, 0].unique(dim=1).squeeze().tolist() != list(range(TIME))
        assert module._split_heads(x)[0, 0, :, 0].tolist() == [0, 0, 1, 1, 2]
        fixed: Any = build("fixed", "atn303_head_split")
        assert fixed._split_heads(x)[0, 0, :, 0].tolist() == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize(("kind", "leaks"), [("broken", True), ("fixed", False)])
    def test_atn304_a_row_of_the_output_projection_holds_other_positions(self, kind: str, leaks: bool) -> None:
        module: Any = build(kind, "atn304_head_merge")
        module.to_kv.weight[33:] = torch.eye(33)
        module.to_q.weight.zero_().fill_diagonal_(1e4)
        module.to_kv.weight[:33] = torch.eye(33)
        x = F.normalize(features(module).view(BATCH, TIME, 3, 11), dim=-1).flatten(2)  # each position sees only itself
        rows: list[torch.Tensor] = []
        module.to_out.register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0]))
        module(x)
        assert torch.allclose(rows[0], x, atol=1e-5) is not leaks

    @staticmethod
    def line_in_twin(error: BaseException) -> int | None:
        """The line of the innermost frame that lies in an example."""
        frames = traceback.extract_tb(error.__traceback__)
        return next(frame.lineno for frame in reversed(frames) if "examples" in frame.filename)
