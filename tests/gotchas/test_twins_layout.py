"""The twins of axes and heads against plain torch: what each broken one mixes, loses or leaves out.

Nothing here asks attn-guard for an opinion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.gotchas.test_twins_behave import TIME, features, influence
from tests.gotchas.twins import build


@pytest.fixture(autouse=True)
def _quiet_and_repeatable() -> Iterator[None]:
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def of_heads(tensor: Tensor, heads: int) -> Tensor:
    """(batch, time, d_model) → (batch, heads, time, head_dim)."""
    return tensor.view(*tensor.shape[:2], heads, -1).transpose(1, 2)


class TestHeadsBeforeTime:
    @pytest.mark.parametrize(("kind", "mixes"), [("broken", False), ("fixed", True)])
    def test_atn306_a_position_sees_others(self, kind: str, mixes: bool) -> None:
        module = build(kind, "atn306_attention_over_heads")
        seen = influence(module, features(module))
        others = torch.ones(TIME, TIME).tril(-1).bool()
        assert bool(seen[:, others].all()) is mixes
        assert bool(seen[:, others].any()) is mixes

    def test_atn306_the_fixed_one_is_the_reference(self) -> None:
        module: Any = build("fixed", "atn306_attention_over_heads")
        x = features(module)
        q, k, v = (of_heads(part, 4) for part in module.c_attn(x).chunk(3, dim=-1))
        expected = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        torch.testing.assert_close(module(x), module.c_proj(expected))


class TestLetters:
    @pytest.mark.parametrize(("kind", "mixes"), [("broken", False), ("fixed", True)])
    def test_atn307_a_position_sees_others(self, kind: str, mixes: bool) -> None:
        module = build(kind, "atn307_einsum_axes")
        x = features(module)
        before = module(x)
        x[:, 1] = torch.randn_like(x[:, 1])
        changed = ((module(x) - before).abs() > 1e-5).any(dim=-1)
        assert changed[:, 1].all()
        assert bool(changed[:, 2:].all()) is mixes

    def test_atn307_what_comes_out_is_the_value_itself(self) -> None:
        module: Any = build("broken", "atn307_einsum_axes")
        x = features(module)
        torch.testing.assert_close(module(x), module.to_out(module.to_qkv(x).chunk(3, dim=-1)[2]))


class TestColumns:
    @pytest.mark.parametrize(("kind", "live"), [("broken", 1), ("fixed", 3)])
    def test_atn309_heads_of_the_value_that_get_a_gradient(self, kind: str, live: int) -> None:
        module: Any = build(kind, "atn309_dead_columns")
        x = features(module)
        with torch.enable_grad():
            (module(x) * torch.randn_like(x)).sum().backward()
        reached = module.w_v.weight.grad.view(3, 13, 39).flatten(1).any(dim=1)
        assert reached.tolist() == [head < live for head in range(3)]

    def test_atn309_the_fixed_one_is_the_reference(self) -> None:
        module: Any = build("fixed", "atn309_dead_columns")
        x = features(module)
        q, k, v = (of_heads(part(x), 3) for part in (module.w_q, module.w_k, module.w_v))
        expected = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        torch.testing.assert_close(module(x), module.w_o(expected))


class TestReshape:
    @pytest.mark.parametrize(("kind", "scrambles"), [("broken", True), ("fixed", False)])
    def test_atn310_a_pixel_sees_other_pixels(self, kind: str, scrambles: bool) -> None:
        module = build(kind, "atn310_axis_reshape")
        video = torch.randn(2, 5, 7, 22)
        before = module(video)
        video[:, :, 0] = torch.randn(2, 5, 22)
        others = (module(video) != before)[:, :, 1:]
        assert bool(others.any()) is scrambles

    def test_atn310_the_fixed_one_is_each_pixel_by_itself(self) -> None:
        module: Any = build("fixed", "atn310_axis_reshape")
        video = torch.randn(2, 5, 7, 22)
        for pixel in range(7):
            x = module.norm(video[:, :, pixel])
            expected = video[:, :, pixel] + module.attention(x, x, x)[0]
            torch.testing.assert_close(module(video)[:, :, pixel], expected)


class TestBatch:
    @pytest.mark.parametrize(("kind", "leaks"), [("broken", True), ("fixed", False)])
    def test_atn305_a_sentence_depends_on_its_batch(self, kind: str, leaks: bool) -> None:
        module = build(kind, "atn305_batch_first")
        ids = torch.randint(29, (3, 5))
        assert torch.allclose(module(ids)[:1], module(ids[:1]), atol=1e-6) is not leaks

    @pytest.mark.parametrize(("kind", "mixes"), [("broken", False), ("fixed", True)])
    def test_atn305_a_token_sees_its_sentence(self, kind: str, mixes: bool) -> None:
        module: Any = build(kind, "atn305_batch_first")
        rows: list[Tensor] = []
        module.norm.register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0]))
        ids = torch.randint(29, (3, 5))
        module(ids)
        ids[:, 0] = (ids[:, 0] + 1) % 29
        module(ids)
        assert bool((rows[0] != rows[1])[:, 1:].any()) is mixes


class TestGroups:
    @pytest.mark.parametrize(("kind", "order"), [("broken", [0, 1, 0, 1, 0, 1]), ("fixed", [0, 0, 0, 1, 1, 1])])
    def test_atn308_which_key_head_a_query_head_meets(self, kind: str, order: list[int]) -> None:
        module: Any = build(kind, "atn308_gqa_repeat_order")
        x = features(module)
        q = of_heads(module.wq(x), 6)
        k, v = (of_heads(part(x), 2)[:, order] for part in (module.wk, module.wv))
        expected = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        torch.testing.assert_close(module(x), module.wo(expected))

    def test_atn308_torch_groups_neighbours(self) -> None:
        module: Any = build("fixed", "atn308_gqa_repeat_order")
        x = features(module)
        parts = of_heads(module.wq(x), 6), of_heads(module.wk(x), 2), of_heads(module.wv(x), 2)
        context = F.scaled_dot_product_attention(*parts, enable_gqa=True)
        torch.testing.assert_close(module(x), module.wo(context.transpose(1, 2).flatten(2)))

    def test_atn311_thirds_do_not_fit_the_heads(self) -> None:
        module: Any = build("broken", "atn311_qkv_split")
        x = features(module)
        assert [part.shape[-1] for part in module.qkv_proj(x).chunk(3, dim=-1)] == [14, 14, 14]
        with pytest.raises(RuntimeError, match=r"shape '\[3, 5, 4, 7\]' is invalid"):
            module(x)

    def test_atn311_the_fixed_one_is_the_reference(self) -> None:
        module: Any = build("fixed", "atn311_qkv_split")
        x = features(module)
        q, k, v = module.qkv_proj(x)[..., :28], module.qkv_proj(x)[..., 28:35], module.qkv_proj(x)[..., 35:]
        context = F.scaled_dot_product_attention(of_heads(q, 4), k[:, None], v[:, None], is_causal=True)
        torch.testing.assert_close(module(x), module.o_proj(context.transpose(1, 2).flatten(2)))
