"""Returned attention maps, held against the weights that made the output."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.anatomy import Size
from attn_guard.findings import Finding, Severity
from tests.probe.modules import HEAD_DIM, D, H, features, later, seeded
from tests.probe.silent_modules import Parts

BATCH, TIME = 2, 5


class Showing(Parts):
    """Causal attention that returns a map beside its output; ``show`` makes it of the scores and the weights."""

    def __init__(self, show: Callable[[Tensor, Tensor], Tensor | tuple[Tensor, ...]], dropout: float = 0.0) -> None:
        super().__init__()
        self.show, self.dropout = show, nn.Dropout(dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | tuple[Tensor, ...]]:
        q, k, v = self.heads(x)
        scores = self.scores(q, k)
        weights = self.dropout(self.hide(scores).softmax(-1))
        return self.merge(weights @ v), self.show(scores, weights)


def shown(show: Callable[[Tensor, Tensor], Tensor | tuple[Tensor, ...]], dropout: float = 0.0) -> list[Finding]:
    return list(attn_guard.check(seeded(Showing, show, dropout), features(BATCH, TIME), causal=True, preview=True))


@pytest.mark.parametrize(
    ("show", "holds"),
    [
        (lambda scores, _: scores, "the scores before the softmax"),
        (lambda scores, _: scores.masked_fill(later(TIME), -torch.inf), "the scores before the softmax"),
        (lambda _, weights: weights.mT, "the weights with queries and keys swapped"),
        (lambda _, weights: weights.transpose(1, 2), "the weights with heads between queries and keys"),
        (lambda _, weights: weights.flip(1), "the weights in another order of samples or heads"),
        (lambda _, weights: weights.flip(0), "the weights in another order of samples or heads"),
        (
            lambda _, weights: weights.reshape(H, BATCH, TIME, TIME).transpose(0, 1),
            "the weights in another order of samples or heads",
        ),
        (lambda scores, _: scores.softmax(-1), "other weights than those that made the output"),
        (lambda scores, _: (scores / 9).softmax(-1).tril(), "other weights than those that made the output"),
    ],
)
def test_maps_that_mislead(show: Callable[[Tensor, Tensor], Tensor], holds: str) -> None:
    (found,) = shown(show)
    assert (found.code, found.severity) == ("ATN603", Severity.WARNING)
    assert found.message == f"the returned map holds {holds}"


def test_hidden_keys_with_weight_are_measured() -> None:
    (found,) = shown(lambda scores, _: scores.softmax(-1))
    assert found.expected == "0 for keys that the mask hides"
    module = seeded(Showing, lambda scores, _: scores.softmax(-1))
    largest = module(features(BATCH, TIME))[1][..., later(TIME)].detach().max()
    assert found.found == f"up to {float(largest):.2g}"


class Recomputed(Parts):
    """The map is computed a second time, perhaps without the mask; asked for by an argument."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.masked = masked

    def forward(self, x: Tensor, need_weights: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        q, k, v = self.heads(x)
        output = self.merge(self.hide(self.scores(q, k)).softmax(-1) @ v)
        again = self.hide(self.scores(q, k)) if self.masked else self.scores(q, k)
        return (output, again.softmax(-1)) if need_weights else output


@pytest.mark.parametrize("masked", [True, False])
def test_a_map_that_is_asked_for_and_computed_again(masked: bool) -> None:
    report = attn_guard.check(seeded(Recomputed, masked), causal=True, preview=True)
    assert list(report.codes) == ([] if masked else ["ATN603"])


@pytest.mark.parametrize(
    "show",
    [
        lambda _, weights: weights,
        lambda _, weights: weights.flatten(0, 1),
        lambda _, weights: weights.permute(0, 2, 3, 1),
        lambda _, weights: weights.half(),
        lambda _, weights: weights.detach().clone(),
        lambda _, weights: weights[:, 0],
        lambda _, weights: weights.amax(dim=1),
        lambda scores, weights: (weights, scores),
        lambda scores, _: scores.sigmoid().mean(),
        lambda scores, _: -(scores**2),
    ],
)
def test_maps_that_do_not(show: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert shown(show) == []


def test_weights_that_are_changed_before_they_meet_the_values() -> None:
    """Zeroed rows, re-normalised weights: both what the softmax gave and what met the values are the weights."""

    class Renormalised(Parts):
        def __init__(self, early: bool) -> None:
            super().__init__()
            self.early = early

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            q, k, v = self.heads(x)
            weights = self.scores(q, k).softmax(-1)
            kept = weights * (weights > 0.1)
            return self.merge(kept / kept.sum(-1, keepdim=True) @ v), weights if self.early else kept

    for early in (True, False):
        assert list(attn_guard.check(seeded(Renormalised, early), select=["ATN6"])) == []


@pytest.mark.parametrize("show", [lambda _, w: w.mean(dim=1), lambda _, w: w.sum(dim=1) / H])
def test_the_mean_over_heads_is_a_remark(show: Callable[[Tensor, Tensor], Tensor]) -> None:
    (found,) = shown(show)
    assert (found.code, found.severity) == ("ATN601", Severity.INFO)
    assert found.found == f"1, the mean of {H}"


class Wrapper(nn.Module):
    def __init__(self, average: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.average = average
        self.attention = nn.MultiheadAttention(D, H, dropout, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        attended: tuple[Tensor, Tensor] = self.attention(x, x, x, average_attn_weights=self.average)
        return attended


def test_a_wrapper_around_the_built_in_layer() -> None:
    (found,) = attn_guard.check(seeded(Wrapper), preview=True)
    assert (found.code, found.severity) == ("ATN601", Severity.INFO)
    assert list(attn_guard.check(seeded(Wrapper, average=False), preview=True)) == []
    (found,) = attn_guard.check(seeded(Wrapper, average=False, dropout=0.2), preview=True)
    assert (found.code, found.severity) == ("ATN602", Severity.INFO)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_the_built_in_layer_itself(dropout: float) -> None:
    attention = nn.MultiheadAttention(D, H, dropout, batch_first=True)
    assert list(attn_guard.check(attention, preview=True)) == []


def test_weights_with_dropout() -> None:
    (found,) = shown(lambda _, weights: weights, dropout=0.3)
    assert (found.code, found.severity, found.expected) == ("ATN602", Severity.WARNING, "rows that sum to 1")
    assert shown(lambda scores, _: scores.masked_fill(later(TIME), -torch.inf).softmax(-1), dropout=0.3) == []


def test_a_rate_of_0_drops_nothing_from_the_weights() -> None:
    assert shown(lambda _, weights: weights, dropout=0.0) == []


def test_as_many_queries_as_samples() -> None:
    """(heads, batch) and (batch, heads) have one shape where their numbers coincide."""
    module = seeded(Showing, lambda _, weights: weights)
    assert list(attn_guard.check(module, features(batch=H, time=H), causal=True, preview=True)) == []


def test_cross_attention_maps() -> None:
    class Cross(Parts):
        def __init__(self, turned: bool) -> None:
            super().__init__()
            self.turned = turned

        def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
            q, k = (part(y).unflatten(-1, (H, HEAD_DIM)).transpose(1, 2) for part, y in ((self.q, x), (self.k, memory)))
            weights = self.scores(q, k).softmax(-1)
            context = weights @ self.v(memory).unflatten(-1, (H, HEAD_DIM)).transpose(1, 2)
            return self.merge(context), weights.mT if self.turned else weights

    assert attn_guard.check(seeded(Cross, True), cross=True).codes == {"ATN603": 1}
    assert attn_guard.check(seeded(Cross, False), cross=True).codes == {}


class Gated(Parts):
    """A small product of its own says how open each key is to each query; the logarithm of that is added."""

    GATE_DIM = 2

    def __init__(self, show: Callable[[Tensor, Tensor, Tensor], Tensor], gate: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.gates = nn.Linear(D, 2 * H * self.GATE_DIM)
        self.show, self.gate = show, gate

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        asks, opens = self.gates(x).unflatten(-1, (H, 2 * self.GATE_DIM)).transpose(1, 2).chunk(2, dim=-1)
        gate = self.gate(asks @ opens.mT * self.GATE_DIM**-0.5)
        q, k, v = self.heads(x)
        scores = self.scores(q, k) + gate.log()
        weights = scores.softmax(-1)
        return self.merge(weights @ v), self.show(gate, scores, weights)


@pytest.mark.parametrize("gate", [torch.sigmoid, nn.functional.softplus])
class TestGates:
    def test_a_gate_is_no_map(self, gate: Callable[[Tensor], Tensor]) -> None:
        module = seeded(Gated, lambda gate, *_: gate, gate)
        assert attn_guard.check(module, features(BATCH, TIME)).ok

    def test_the_scores_are_those_of_query_and_key(self, gate: Callable[[Tensor], Tensor]) -> None:
        (site,) = attn_guard.xray(seeded(Gated, lambda _, __, weights: weights, gate), features(BATCH, TIME)).sites
        assert site.site.sizes[Size.HEAD_DIM] == HEAD_DIM
        assert site.site.scale is not None
        assert site.site.scale.is_right

    @pytest.mark.parametrize("show", [lambda _, scores, __: scores, lambda _, __, weights: weights.mT])
    def test_maps_that_mislead_beside_a_gate(
        self, gate: Callable[[Tensor], Tensor], show: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> None:
        report = attn_guard.check(seeded(Gated, show, gate), features(BATCH, TIME))
        assert report.codes == {"ATN603": 1}
