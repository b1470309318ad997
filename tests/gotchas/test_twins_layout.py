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
