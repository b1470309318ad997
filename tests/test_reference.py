"""Attention from scratch equals the built-in, and says what is wrong with its input."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from attn_guard.reference import MultiHeadAttention, causal_mask, padding_mask, scaled_dot_product_attention


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 3), max_size=2), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9), st.booleans())
def test_equals_the_fused_function(leading: list[int], queries: int, keys: int, width: int, masked: bool) -> None:
    query, key, value = drawn(*leading, queries, width), drawn(*leading, keys, width, seed=1), drawn(*leading, keys, 5)
    mask = drawn(queries, keys, seed=2) > 0 if masked else None
    if mask is not None:
        mask[:, 0] = True
    context, weights = scaled_dot_product_attention(query, key, value, mask)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert torch.allclose(context, expected, atol=1e-5)
    assert weights.shape == (*leading, queries, keys)
    assert torch.allclose(weights.sum(-1), torch.ones(*leading, queries), atol=1e-6)
    if mask is not None:
        assert (weights.masked_select(~mask) == 0).all()


def test_the_value_may_have_a_width_of_its_own() -> None:
    context, _ = scaled_dot_product_attention(drawn(2, 3, 5), drawn(2, 4, 5), drawn(2, 4, 7))
    assert context.shape == (2, 3, 7)


def test_by_hand() -> None:
    query = torch.tensor([[2.0, 0.0, 0.0, 0.0]])
    key = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    _, weights = scaled_dot_product_attention(query, key, key)
    ratio = torch.tensor(1.0).exp().item()  # 2 · 1 / √4 against 0
    assert weights[0].tolist() == pytest.approx([ratio / (ratio + 1), 1 / (ratio + 1)])


def test_masks_of_numbers_and_of_bools_say_the_same() -> None:
    x = drawn(2, 3, 5, 7)
    keep = causal_mask(5)
    for mask in (keep, keep.long(), keep.float()):
        assert torch.equal(
            scaled_dot_product_attention(x, x, x, mask)[0], scaled_dot_product_attention(x, x, x, keep)[0]
        )


def test_a_query_without_any_key_gets_nan() -> None:
    x = drawn(3, 4)
    mask = torch.tensor([[True, True, True], [False, False, False], [True, False, False]])
    context, _ = scaled_dot_product_attention(x, x, x, mask)
    assert context.isnan().all(dim=-1).tolist() == [False, True, False]


class TestMultiHeadAttention:
    def test_shapes_of_the_text(self) -> None:
        output, weights = MultiHeadAttention(64, 8)(drawn(2, 5, 64))
        assert output.shape == (2, 5, 64)
        assert weights.shape == (2, 8, 5, 5)

    @pytest.mark.parametrize("causal", [True, False])
    @pytest.mark.parametrize(("width", "heads"), [(64, 8), (21, 3), (6, 1), (5, 5)])
    def test_equals_the_built_in_with_the_same_weights(self, width: int, heads: int, causal: bool) -> None:
        ours = MultiHeadAttention(width, heads)
        theirs = nn.MultiheadAttention(width, heads, batch_first=True)
        with torch.no_grad():
            theirs.in_proj_weight.copy_(ours.qkv.weight)
            theirs.in_proj_bias.copy_(ours.qkv.bias)
            theirs.out_proj.weight.copy_(ours.out.weight)
            theirs.out_proj.bias.copy_(ours.out.bias)
        x = drawn(2, 5, width)
        keep = causal_mask(5) if causal else None
        output, weights = ours(x, keep)
        expected, map_ = theirs(x, x, x, attn_mask=None if keep is None else ~keep, average_attn_weights=False)
        assert torch.allclose(output, expected, atol=1e-5)
        assert torch.allclose(weights, map_, atol=1e-6)

    @settings(max_examples=15, deadline=None, derandomize=True)
    @given(st.integers(1, 3), st.integers(1, 7), st.integers(1, 4), st.integers(1, 5))
    def test_a_causal_mask_hides_the_future(self, batch: int, time: int, heads: int, head_dim: int) -> None:
        attention = MultiHeadAttention(heads * head_dim, heads)
        x = drawn(batch, time, heads * head_dim)
        changed = x.clone()
        changed[:, -1] += 1
        before, after = (attention(each, causal_mask(time))[0] for each in (x, changed))
        assert torch.equal(before[:, :-1], after[:, :-1])
        assert not torch.equal(before[:, -1], after[:, -1])

    def test_padding_has_no_influence(self) -> None:
        attention = MultiHeadAttention(21, 3)
        x = drawn(2, 5, 21)
        mask = padding_mask(torch.tensor([5, 3]))
        changed = x.clone()
        changed[1, 3:] = 9.0
        before, after = (attention(each, mask)[0] for each in (x, changed))
        assert torch.equal(before[0], after[0])
        assert torch.equal(before[1, :3], after[1, :3])

    @pytest.mark.parametrize(("width", "heads"), [(10, 3), (64, 7), (3, 4)])
    def test_a_width_that_does_not_divide(self, width: int, heads: int) -> None:
        with pytest.raises(ValueError, match=f"d_model={width} does not divide by heads={heads}"):
            MultiHeadAttention(width, heads)


def test_the_staircase() -> None:
    assert causal_mask(4).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert causal_mask(1).dtype is torch.bool


class TestPaddingMask:
    def test_real_tokens_are_true(self) -> None:
        mask = padding_mask(torch.tensor([2, 3, 0]))
        assert mask.shape == (3, 1, 1, 3)
        assert mask[:, 0, 0].int().tolist() == [[1, 1, 0], [1, 1, 1], [0, 0, 0]]

    def test_a_longer_time(self) -> None:
        assert padding_mask(torch.tensor([1, 2]), time=4)[:, 0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]
