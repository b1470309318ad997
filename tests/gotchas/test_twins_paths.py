"""The twins about paths that should agree, measured with plain torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.gotchas.twins import build

PADDING = torch.tensor([[False, False, False, True, True], [True, False, False, False, False]])


def features() -> torch.Tensor:
    return torch.randn(2, 5, 22, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("kind", "kept"), [("broken", False), ("fixed", True)])
@torch.no_grad()
def test_atn209_asking_for_weights_loses_the_mask(kind: str, kept: bool) -> None:
    module = build(kind, "atn209_mask_dropped")
    plain, _ = module(features(), PADDING)
    explained, weights = module(features(), PADDING, need_weights=True)
    assert torch.allclose(plain, explained, atol=1e-5) is kept
    on_pads = weights.masked_select(PADDING[:, None, None].expand_as(weights))
    assert bool((on_pads == 0).all()) is kept


@pytest.mark.parametrize(("kind", "agree"), [("broken", False), ("fixed", True)])
@torch.no_grad()
def test_atn503_the_fused_path_has_a_scale_of_its_own(kind: str, agree: bool) -> None:
    module: Any = build(kind, "atn503_path_divergence")
    by_hand = module(features())
    module.fused = True
    assert torch.allclose(module(features()), by_hand, atol=1e-5) is agree
    module.scale = 11**-0.5
    module.fused = False
    by_hand = module(features())
    module.fused = True
    torch.testing.assert_close(module(features()), by_hand)


@pytest.mark.parametrize(("kind", "drops"), [("broken", False), ("fixed", True)])
@torch.no_grad()
def test_atn504_the_rate_changes_nothing_in_training(kind: str, drops: bool) -> None:
    module = build(kind, "atn504_dropout_unused")
    x = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(0))
    plain = module(x)
    torch.testing.assert_close(module(x), plain)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert torch.equal(module.train()(x), plain) is not drops
