"""What big libraries do on purpose is not held against them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.contract import Contract
from attn_guard.probe.designs import PROMISES, configured, known_contract
from tests.probe.cached_modules import Pair
from tests.probe.cached_modules import Parts as CachedParts
from tests.probe.cached_modules import seen as visible
from tests.probe.modules import HEAD_DIM, D, H, seeded
from tests.probe.silent_modules import Core


class Scaled(Core):
    """Scores multiplied by a number that the module, or its configuration, may state."""

    def __init__(self, factor: float, **stated: Any) -> None:
        super().__init__()
        self.factor = factor
        for name, value in stated.items():
            setattr(self, name, value)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT * self.factor


def codes(module: nn.Module) -> list[str]:
    return [finding.code for finding in attn_guard.check(module)]


@pytest.mark.parametrize("scale", [1 / D, D**-0.5, 1 / HEAD_DIM, 0.37])
def test_a_scale_that_the_configuration_states(scale: float) -> None:
    assert codes(seeded(Scaled, scale)) == ["ATN102"]
    assert codes(seeded(Scaled, scale, config=SimpleNamespace(attention_multiplier=scale))) == []
    assert codes(seeded(Scaled, scale, config=SimpleNamespace(query_pre_attn_scalar=scale**-2))) == []
    assert codes(seeded(Scaled, scale, config=SimpleNamespace(attention_multiplier=3 * scale))) == ["ATN102"]


def test_a_configuration_around_the_module() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = SimpleNamespace(attention_multiplier=1 / HEAD_DIM)
            self.layer = Scaled(1 / HEAD_DIM)

        def forward(self, x: Tensor) -> Tensor:
            attended: Tensor = self.layer(x)
            return attended

    assert codes(seeded(Model)) == []


def test_a_stated_scale_of_one() -> None:
    assert codes(seeded(Scaled, 1.0)) == ["ATN101"]
    assert codes(seeded(Scaled, 1.0, scaling=1.0)) == []
    assert codes(seeded(Scaled, 1.0, scaling=0.5)) == ["ATN101"]


def test_families_that_are_known_to_be_unscaled(monkeypatch: pytest.MonkeyPatch) -> None:
    (home, promises), *_ = PROMISES.items()
    module = seeded(Scaled, 1.0)
    assert known_contract(module) == Contract()
    monkeypatch.setattr(Scaled, "__module__", f"{home}modeling")
    assert known_contract(module) == promises
    assert codes(module) == []


def test_fields_that_are_no_numbers() -> None:
    module = nn.Module()
    assert configured(module, 0.5) == ""
    module.config = SimpleNamespace(attention_multiplier=None, query_pre_attn_scalar="large")  # type: ignore[assignment]
    assert configured(module, 0.5) == ""


class RelativePositions(Core):
    """Products of the query with a table of relative positions are added to the scores (Shaw et al. 2018)."""

    def __init__(self, table_first: bool) -> None:
        super().__init__()
        self.table_first = table_first
        self.distances = nn.Embedding(40, HEAD_DIM)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        places = torch.arange(x.shape[1])
        table = self.distances(places[None, :] - places[:, None] + 20)
        bias = (q.unsqueeze(-2) @ table.mT).squeeze(-2) if self.table_first else None
        scores = q @ k.mT
        bias = (q.unsqueeze(-2) @ table.mT).squeeze(-2) if bias is None else bias
        return self.merge(self.hide((scores + bias) * HEAD_DIM**-0.5).softmax(-1) @ v)


@pytest.mark.parametrize("table_first", [False, True])
def test_a_table_of_relative_positions_is_not_the_key(table_first: bool) -> None:
    report = attn_guard.check(seeded(RelativePositions, table_first), causal=True)
    assert list(report) == [], str(report)
    (site,) = report.sites
    assert site.scores is not None
    assert site.scores.shape is not None
    assert site.scores.shape[-2:] == (5, 5)
    assert H in (site.scores.shape[0], site.scores.shape[0] // 3, site.scores.shape[1])


class Sinks(Core):
    """A learned extra column, and the row maximum taken off before the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.sinks = nn.Parameter(torch.randn(H))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        scores = self.hide(self.scores(q, k))
        extra = self.sinks[None, :, None, None].expand(*scores.shape[:-1], 1)
        logits = torch.cat((scores, extra), dim=-1)
        logits = logits - logits.max(dim=-1, keepdim=True).values
        return self.merge(logits.softmax(-1)[..., :-1] @ v)


def test_a_mask_is_seen_before_a_row_maximum_that_is_taken_off() -> None:
    seen = attn_guard.xray(seeded(Sinks))
    (anatomy,) = seen.sites
    assert not anatomy.trace.sideways
    assert anatomy.blocked is not None
    assert anatomy.blocked[0].equal(torch.ones(5, 5, dtype=torch.bool).triu(1))
    assert list(attn_guard.check(seeded(Sinks), causal=True)) == []


def test_attention_over_nothing_is_no_attention() -> None:
    class Empty(Core):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + super().forward(x[:, :0]).sum()

    report = attn_guard.check(seeded(Empty), causal=True)
    assert list(report) == [], str(report)
    assert len(report.sites) == 1


def test_a_class_name_says_less_than_a_flag() -> None:
    class CausalAttention(RelativePositions):
        def hide(self, scores: Tensor) -> Tensor:
            return scores

    assert [finding.code for finding in attn_guard.check(seeded(CausalAttention, False))] == ["ATN214"]
    both_ways = seeded(CausalAttention, False)
    both_ways.is_causal = False  # type: ignore[assignment]
    assert attn_guard.check(both_ways).ok


class Windowed(CachedParts):
    """The full pass sees everything before; of what was decoded, the cache keeps three positions."""

    def forward(self, x: Tensor, past_kv: Pair | None = None) -> tuple[Tensor, Pair]:
        q, k, v = self.heads(x)
        k, v = self.grown(past_kv, k, v)
        mask = visible(q.shape[2], k.shape[2])
        out = self.merged(nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask))
        return out, (k[:, :, -3:], v[:, :, -3:])


@pytest.mark.parametrize(
    ("kinds", "found"), [(None, ["ATN701"]), (["full"], ["ATN701"]), (["reference_sliding_attention"], [])]
)
def test_a_window_over_what_is_decoded_after_a_prompt(kinds: list[str] | None, found: list[str]) -> None:
    module = seeded(Windowed)
    module.config = SimpleNamespace(layer_types=kinds)  # type: ignore[assignment]
    assert codes(module) == found
