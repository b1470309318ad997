"""What the public hypothesis strategies draw."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import find, given, settings
from hypothesis import strategies as st

from attn_guard import reference, strategies
from attn_guard.contract import MaskMeaning
from attn_guard.errors import UsageError
from attn_guard.strategies import COINCIDENCES, Shape

FAST = settings(max_examples=60, deadline=None)


class TestShapes:
    @FAST
    @given(strategies.shapes(batch=3, time=5, heads=2, head_dim=4))
    def test_self_attention_has_as_many_keys_as_queries(self, shape: Shape) -> None:
        assert shape.queries == shape.keys
        assert shape.d_model == shape.heads * shape.head_dim
        assert min(shape.batch, shape.queries, shape.heads, shape.head_dim) >= 1
        assert max(shape.batch, shape.queries, shape.heads, shape.head_dim) <= 5

    @pytest.mark.parametrize(
        "wanted",
        [
            lambda s: s.queries == s.batch > 2,
            lambda s: s.batch == s.heads > 2,
            lambda s: s.batch == 1 < s.queries,
            lambda s: s.queries == 1 < s.batch,
            lambda s: len({s.batch, s.queries, s.heads, s.head_dim}) == 4,
        ],
        ids=["time = batch", "batch = heads", "one sample", "one position", "none"],
    )
    def test_coincidences_and_their_absence_are_found(self, wanted: object) -> None:
        assert wanted(find(strategies.shapes(), wanted))  # type: ignore[operator, arg-type]

    @pytest.mark.parametrize("name", COINCIDENCES)
    def test_a_coincidence_keeps_self_attention_what_it_is(self, name: str) -> None:
        shape = COINCIDENCES[name](Shape(batch=2, queries=7, keys=7, heads=3, head_dim=5))
        assert shape.queries == shape.keys

    def test_cross_attention_has_keys_of_its_own(self) -> None:
        shape = find(strategies.shapes(cross=True), lambda s: s.keys != s.queries)
        assert {shape.keys, shape.queries} == {1, 2}

    def test_shrinks_to_one_of_everything(self) -> None:
        assert find(strategies.shapes(), lambda _: True) == Shape(1, 1, 1, 1, 1)

    @pytest.mark.parametrize("name", ["batch", "time", "heads", "head_dim"])
    def test_a_limit_below_one_is_refused(self, name: str) -> None:
        with pytest.raises(UsageError, match=f"{name}=0.*at least 1"):
            strategies.shapes(**{name: 0})  # type: ignore[arg-type]


class TestMasks:
    @FAST
    @given(st.data(), st.integers(1, 4), st.integers(1, 6))
    def test_lengths(self, data: st.DataObject, batch: int, time: int) -> None:
        drawn = data.draw(strategies.lengths(batch, time))
        assert len(drawn) == batch
        assert all(1 <= length <= time for length in drawn)

    @FAST
    @given(st.data(), st.integers(1, 4), st.integers(1, 6))
    def test_right_padding_is_what_lengths_say(self, data: st.DataObject, batch: int, time: int) -> None:
        mask = data.draw(strategies.padding_masks(batch, time, meaning="attend", sides=["right"]))
        assert mask.dtype == torch.bool
        rebuilt = reference.padding_mask(mask.sum(dim=-1), time)[:, 0, 0]
        assert torch.equal(mask, rebuilt)

    @FAST
    @given(st.data(), st.integers(1, 4), st.integers(1, 6))
    def test_left_padding_is_right_padding_turned_round(self, data: st.DataObject, batch: int, time: int) -> None:
        mask = data.draw(strategies.padding_masks(batch, time, meaning="attend", sides=["left"])).flip(-1)
        assert torch.equal(mask, reference.padding_mask(mask.sum(dim=-1), time)[:, 0, 0])

    @FAST
    @given(st.data(), st.integers(1, 3), st.integers(1, 5), st.sampled_from(["ignore", "attend", "additive"]))
    def test_every_sample_keeps_a_token(self, data: st.DataObject, batch: int, time: int, meaning: MaskMeaning) -> None:
        mask = data.draw(strategies.padding_masks(batch, time, meaning=meaning))
        assert mask.shape == (batch, time)
        kept = {"ignore": mask == 0, "attend": mask == 1, "additive": mask == 0}[meaning]
        assert kept.any(dim=-1).all()
        if meaning == "additive":
            assert {cell for row in mask.tolist() for cell in row} <= {0.0, -torch.inf}

    def test_holes_are_drawn(self) -> None:
        mask = find(strategies.padding_masks(1, 3), lambda m: m.tolist() == [[False, True, False]])
        assert mask.dtype == torch.bool

    @FAST
    @given(st.data(), strategies.shapes(cross=True))
    def test_masks_leave_no_query_empty(self, data: st.DataObject, shape: Shape) -> None:
        mask = data.draw(strategies.attention_masks(shape.queries, shape.keys))
        query, key, value = data.draw(strategies.heads(shape))
        assert F.scaled_dot_product_attention(query, key, value, attn_mask=mask).isfinite().all()

    def test_an_unknown_side_is_refused(self) -> None:
        with pytest.raises(UsageError, match="expected some of 'right', 'left', 'holes'"):
            strategies.padding_masks(1, 2, sides=["up"])  # type: ignore[list-item]


class TestInputs:
    @FAST
    @given(st.data(), strategies.shapes(cross=True), strategies.dtypes(half=False))
    def test_heads_have_the_shape_and_meet_the_reference(
        self, data: st.DataObject, shape: Shape, dtype: torch.dtype
    ) -> None:
        query, key, value = data.draw(strategies.heads(shape, dtype=dtype))
        assert query.shape == (shape.batch, shape.heads, shape.queries, shape.head_dim)
        assert key.shape == value.shape == (shape.batch, shape.heads, shape.keys, shape.head_dim)
        assert query.dtype == key.dtype == value.dtype == dtype
        ours, _ = reference.scaled_dot_product_attention(query, key, value)
        torch.testing.assert_close(ours, F.scaled_dot_product_attention(query, key, value), rtol=1e-4, atol=1e-4)

    @FAST
    @given(strategies.features(2, 3, 5, dtype=torch.bfloat16))
    def test_features(self, x: torch.Tensor) -> None:
        assert x.shape == (2, 3, 5)
        assert x.dtype == torch.bfloat16

    def test_half_precision_only_on_request(self) -> None:
        assert find(strategies.dtypes(), lambda dtype: dtype == torch.float16) == torch.float16
        assert find(strategies.dtypes(half=False), lambda _: True) == torch.float32
