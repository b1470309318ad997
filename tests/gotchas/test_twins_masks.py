"""The twins about masks that are handed over: broken ones have their fault and fixed ones do not, in plain torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.gotchas.twins import build

BATCH, TIME, WIDTH = 3, 5, 14
# Right, left and inside, of different lengths.
PADDING = torch.tensor(
    [
        [False, False, False, True, True],
        [True, False, False, False, False],
        [False, False, True, False, False],
    ]
)


@pytest.fixture(autouse=True)
def _without_gradients() -> object:
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def features(batch: int = BATCH, time: int = TIME) -> Tensor:
    return torch.randn(batch, time, WIDTH)


def leak(module: nn.Module, padding: Tensor = PADDING) -> float:
    """The largest change of an output at a real token when the padded tokens hold something else."""
    x = features(*padding.shape)
    changed = torch.where(padding[..., None], torch.randn_like(x), x)
    return float((module(x, padding) - module(changed, padding))[~padding].abs().max())


def against_alone(module: nn.Module, padding: Tensor = PADDING) -> float:
    """The largest difference, at real tokens, between a batch and its samples one by one."""
    x = features(*padding.shape)
    together = module(x, padding)
    alone = torch.cat([module(x[i : i + 1], padding[i : i + 1]) for i in range(len(x))])
    return float((together - alone)[~padding].abs().max())


class TestPaddingOnQueries:
    NAME = "atn213_padding_on_queries"

    def test_real_tokens_follow_the_padding_only_in_the_broken_one(self) -> None:
        assert leak(build("broken", self.NAME)) > 0.01
        assert leak(build("fixed", self.NAME)) == 0.0

    def test_without_padding_they_agree(self) -> None:
        open_mask, x = torch.zeros(BATCH, TIME, dtype=torch.bool), features()
        broken, fixed = (build(kind, self.NAME) for kind in ("broken", "fixed"))
        fixed.load_state_dict(broken.state_dict())
        assert torch.equal(broken(x, open_mask), fixed(x, open_mask))


class TestMaskHeadOrder:
    NAME = "atn208_mask_head_order"

    def test_a_sample_depends_on_its_company_only_in_the_broken_one(self) -> None:
        assert against_alone(build("broken", self.NAME)) > 0.01
        assert against_alone(build("fixed", self.NAME)) < 1e-6

    def test_padding_leaks_only_in_the_broken_one(self) -> None:
        assert leak(build("broken", self.NAME)) > 0.01
        assert leak(build("fixed", self.NAME)) == 0.0

    def test_a_batch_of_one_hides_it(self) -> None:
        assert leak(build("broken", self.NAME), PADDING[:1]) == 0.0


class TestMaskBroadcast:
    NAME = "atn207_mask_broadcast"
    SQUARE = torch.tensor([[False, False, True], [False, True, False], [False, False, False]])

    def test_the_broken_one_raises_where_sizes_differ(self) -> None:
        with pytest.raises(RuntimeError, match="must match"):
            build("broken", self.NAME)(features(), PADDING)
        assert build("fixed", self.NAME)(features(), PADDING).isfinite().all()

    def test_with_as_many_samples_as_positions_it_runs_and_mixes_them(self) -> None:
        assert leak(build("broken", self.NAME), self.SQUARE) > 0.01
        assert leak(build("fixed", self.NAME), self.SQUARE) == 0.0


class TestAdditiveBinaryMask:
    NAME = "atn206_additive_binary_mask"

    def test_padding_keeps_weight_only_in_the_broken_one(self) -> None:
        x, padding = features(), PADDING
        changed = torch.where(padding[..., None], torch.randn_like(x), x)
        for kind, leaks in (("broken", True), ("fixed", False)):
            module = build(kind, self.NAME)
            difference = float((module(x, ~padding) - module(changed, ~padding))[~padding].abs().max())
            assert (difference > 0.01) is leaks


class TestMaskCombine:
    NAME = "atn221_mask_combine"

    @pytest.mark.parametrize(("kind", "leaks"), [("broken", True), ("fixed", False)])
    def test_padding_and_future_both_leak_in_the_broken_one(self, kind: str, leaks: bool) -> None:
        module = build(kind, self.NAME)
        assert (leak(module) > 0.01) is leaks
        x, nothing = features(), torch.zeros(BATCH, TIME, dtype=torch.bool)
        later = x.clone()
        later[:, -1] = torch.randn(BATCH, WIDTH)
        difference = float((module(x, nothing) - module(later, nothing))[:, :-1].abs().max())
        assert (difference > 0.01) is leaks


class TestMaskWrongSource:
    NAME = "atn222_mask_wrong_source"
    SRC = torch.tensor([[4, 7, 9, 5, 0], [3, 8, 6, 0, 0]])
    TGT = torch.tensor([[6, 2, 0, 0, 0], [9, 4, 3, 8, 1]])

    @pytest.mark.parametrize(("kind", "leaks"), [("broken", True), ("fixed", False)])
    def test_the_embedding_of_padding_reaches_the_output_only_in_the_broken_one(self, kind: str, leaks: bool) -> None:
        module = build(kind, self.NAME)
        before = module(self.SRC, self.TGT)
        module.source.weight[0] = torch.randn(WIDTH)  # type: ignore[union-attr, operator]
        difference = float((module(self.SRC, self.TGT) - before)[self.TGT != 0].abs().max())
        assert (difference > 0.01) is leaks

    def test_different_lengths_raise_only_in_the_broken_one(self) -> None:
        with pytest.raises((RuntimeError, AssertionError)):
            build("broken", self.NAME)(self.SRC, self.TGT[:, :4])
        build("fixed", self.NAME)(self.SRC, self.TGT[:, :4])


class TestMaskOverflow:
    NAME = "atn204_mask_overflow"

    def test_in_half_precision_the_broken_one_raises(self) -> None:
        x = features().half()
        with pytest.raises(RuntimeError, match="without overflow"):
            build("broken", self.NAME)(x, PADDING)
        assert build("fixed", self.NAME)(x, PADDING).isfinite().all()

    def test_in_single_precision_they_agree(self) -> None:
        broken, fixed = (build(kind, self.NAME).float() for kind in ("broken", "fixed"))
        fixed.load_state_dict(broken.state_dict())
        x = features()
        right = PADDING[[0, 2]]  # no row without a key
        torch.testing.assert_close(broken(x[:2], right), fixed(x[:2], right))


class TestMaskMutated:
    NAME = "atn210_mask_mutated"

    @pytest.mark.parametrize(("kind", "kept"), [("broken", False), ("fixed", True)])
    def test_the_mask_of_the_caller(self, kind: str, kept: bool) -> None:
        mask = PADDING.clone()
        build(kind, self.NAME)(features(), mask)
        assert torch.equal(mask, PADDING) is kept

    def test_a_second_layer_gets_another_mask_from_the_broken_one(self) -> None:
        for kind, agrees in (("broken", False), ("fixed", True)):
            module, x, mask = build(kind, self.NAME), features(), PADDING.clone()
            first = module(x, mask)
            assert torch.equal(first, module(x, mask)) is agrees


class TestEmptyRow:
    NAME = "atn211_empty_row"

    @pytest.mark.parametrize(("kind", "finite"), [("broken", False), ("fixed", True)])
    def test_left_padding_in_a_causal_layer(self, kind: str, finite: bool) -> None:
        module, x = build(kind, self.NAME), features()
        output = module(x, PADDING)
        assert bool(output.isfinite().all()) is finite
        assert output[~PADDING].isfinite().all()
        assert bool(module(output, PADDING)[~PADDING].isfinite().all()) is finite

    @pytest.mark.parametrize(("kind", "finite"), [("broken", False), ("fixed", True)])
    def test_the_gradient_of_a_loss_over_real_tokens(self, kind: str, finite: bool) -> None:
        module = build(kind, self.NAME)
        with torch.enable_grad():
            module(features(), PADDING)[~PADDING].sum().backward()
        assert all(bool(p.grad.isfinite().all()) for p in module.parameters() if p.grad is not None) is finite


class TestMaskNotBuffer:
    NAME = "atn220_mask_not_buffer"

    def test_both_hide_the_future_where_they_were_made(self) -> None:
        broken, fixed, x = build("broken", self.NAME), build("fixed", self.NAME), features()
        fixed.load_state_dict(broken.state_dict())
        assert torch.equal(broken(x), fixed(x))

    @pytest.mark.parametrize("target", ["meta", torch.bfloat16])
    def test_only_the_fixed_one_can_be_moved(self, target: str | torch.dtype) -> None:
        x = features().to(target)
        assert build("fixed", self.NAME).to(target)(x).shape == x.shape
        with pytest.raises((RuntimeError, NotImplementedError)):
            build("broken", self.NAME).to(target)(x)

    def test_neither_changes_the_checkpoint(self) -> None:
        broken, fixed = (build(kind, self.NAME).state_dict() for kind in ("broken", "fixed"))
        assert list(broken) == list(fixed)
