"""Which axis attention runs over, and what einsums do with theirs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from tests.probe.modules import HEAD_DIM, STYLES, D, H, features, seeded
from tests.probe.silent_modules import Encoder


def codes(module: nn.Module, *args: Tensor, **promises: object) -> list[str]:
    report = attn_guard.check(module, args or None, preview=True, **promises)  # type: ignore[arg-type]
    return [finding.code for finding in report if finding.fails]


class TimeBeforeHeads(Encoder):
    """(batch, time, H, head_dim) handed to the attention as it is."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (H, HEAD_DIM)) for part in (self.q, self.k, self.v))
        merged: Tensor = self.out(self.attend(q, k, v).flatten(2))
        return merged

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v)


class TimeBeforeHeadsByHand(TimeBeforeHeads):
    """The same without SDPA."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT * HEAD_DIM**-0.5).softmax(-1) @ v


class TimeBeforeHeadsMerged(TimeBeforeHeads):
    """Merged by a transpose, as if it had been right before."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (H, HEAD_DIM)) for part in (self.q, self.k, self.v))
        return self.out(self.attend(q, k, v).transpose(1, 2).reshape(x.shape))


class TestOverHeads:
    @pytest.mark.parametrize("build", [TimeBeforeHeads, TimeBeforeHeadsByHand, TimeBeforeHeadsMerged])
    @pytest.mark.parametrize(("batch", "time"), [(2, 5), (1, 6), (3, 3), (3, 7), (2, 1)])
    def test_is_seen_at_every_size(self, build: Callable[[], nn.Module], batch: int, time: int) -> None:
        assert codes(seeded(build), features(batch, time)) == ["ATN306"]

    def test_explains_the_leak(self) -> None:
        (found,) = attn_guard.check(seeded(TimeBeforeHeadsMerged), causal=True)
        assert (found.code, set(found.consequences)) == ("ATN306", {"ATN214", "ATN304"})

    def test_tokens_cut_out_of_one_vector_are_positions(self) -> None:
        class Tokens(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.tokens, self.attention = nn.Linear(D, 5 * D), STYLES["fused qkv"]()

            def forward(self, x: Tensor) -> Tensor:
                attended: Tensor = self.attention(self.tokens(x.mean(dim=1)).view(-1, 5, D))
                return attended

        assert codes(seeded(Tokens)) == []

    def test_pieces_of_a_single_vector_may_attend_to_each_other(self) -> None:
        class Pieces(TimeBeforeHeadsByHand):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x.mean(dim=1))

            def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                return super().attend(q, k, v).unsqueeze(1)

        assert "ATN306" not in codes(seeded(Pieces))


class Letters(Encoder):
    """Two einsums of any letters."""

    def __init__(self, scores: str, context: str) -> None:
        super().__init__()
        self.letters = scores, context

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        weights = (torch.einsum(self.letters[0], q, k) * HEAD_DIM**-0.5).softmax(-1)
        return self.merge(torch.einsum(self.letters[1], weights, v))


SCORES, CONTEXT = "bhqd,bhkd->bhqk", "bhqk,bhkd->bhqd"
WRONG_LETTERS = {
    "weights and values summed apart": (SCORES, "bhqk,bhvd->bhqd"),
    "the query's own value": (SCORES, "bhqk,bhqd->bhqd"),
    "weights summed over the queries": (SCORES, "bhqk,bhkd->bhkd"),
    "key heads summed": ("bhqd,bgkd->bhqk", CONTEXT),
    "value heads summed": (SCORES, "bhqk,bgkd->bhqd"),
    "keys of all samples summed": ("bhqd,ahkd->bhqk", CONTEXT),
    "values of all samples summed": (SCORES, "bhqk,ahkd->bhqd"),
    "features summed apart": ("bhqd,bhke->bhqk", CONTEXT),
    "the diagonal of the weights": (SCORES, "bhkk,bhkd->bhkd"),
    "scores summed over heads": ("bhqd,bhkd->bqk", "bqk,bhkd->bhqd"),
}


class TestLetters:
    @pytest.mark.parametrize("style", WRONG_LETTERS)
    @pytest.mark.parametrize(("batch", "time"), [(2, 5), (3, 3)])
    def test_a_lost_letter(self, style: str, batch: int, time: int) -> None:
        assert codes(seeded(Letters, *WRONG_LETTERS[style]), features(batch, time)) == ["ATN307"]

    @pytest.mark.parametrize("context", [CONTEXT, "bhij,bhjf->bhif", "...qk,...kd->...qd"])
    @pytest.mark.parametrize("time", [1, 3, 7])
    def test_right_letters(self, context: str, time: int) -> None:
        assert codes(seeded(Letters, SCORES, context), features(batch=3, time=time)) == []

    def test_a_learned_matrix_of_which_only_the_diagonal_is_read(self) -> None:
        class Diagonal(Encoder):
            def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                q, k, v = super().heads(torch.einsum("ee,bte->bte", self.q.weight, x))
                return q, k, v

        assert codes(seeded(Diagonal)) == ["ATN307"]

    def test_a_group_letter_that_only_the_query_has(self) -> None:
        """Two query heads to each head of keys, and their scores are added up."""

        class Grouped(nn.Module):
            def __init__(self, scores: str) -> None:
                super().__init__()
                self.q, self.kv, self.out = nn.Linear(28, 28), nn.Linear(28, 28), nn.Linear(14, 28)
                self.letters = scores

            def forward(self, x: Tensor) -> Tensor:
                q = self.q(x).unflatten(-1, (2, 2, 7))
                k, v = (part.unflatten(-1, (2, 7)) for part in self.kv(x).chunk(2, dim=-1))
                weights = (torch.einsum(self.letters, q, k) * 7**-0.5).softmax(-1)
                return self.out(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))

        assert codes(seeded(Grouped, "bqhgd,bkhd->bhqk"), features(width=28)) == ["ATN307"]

    def test_renormalised_weights_and_sums_of_products_are_no_einsum(self) -> None:
        class ByHand(Encoder):
            def forward(self, x: Tensor) -> Tensor:
                q, k, v = self.heads(x)
                weights = (q @ k.mT * HEAD_DIM**-0.5).softmax(-1)
                weights = weights / weights.sum(-1, keepdim=True)
                return self.merge((weights.unsqueeze(-1) * v.unsqueeze(-3)).sum(-2) * weights.sum(-1, keepdim=True))

        assert codes(seeded(ByHand)) == []
