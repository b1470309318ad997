"""Modules with one output for each sample and none for each position."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import attn_guard

IDS = torch.randint(1, 29, (3, 7), generator=torch.Generator().manual_seed(1))


class Classifier(nn.Module):
    """A mean over the tokens of a text; every part can be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(29, 20)
        self.table = nn.Parameter(torch.randn(1, 32, 20))
        self.q, self.k, self.v = (nn.Linear(20, 20) for _ in range(3))
        self.classify = nn.Linear(20, 6)

    def forward(self, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        keep = torch.ones_like(ids) if keep is None else keep
        x = self.attend(self.positions(self.embedding(ids)), keep.bool())
        return self.answer(self.pool(x, keep))

    def positions(self, x: Tensor) -> Tensor:
        return x + self.table[:, : x.shape[1]]

    def attend(self, x: Tensor, keep: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(x).mT * 20**-0.5
        weights = scores.masked_fill(~keep[:, None], torch.finfo(x.dtype).min).softmax(-1)
        return weights @ self.v(x)

    def pool(self, x: Tensor, keep: Tensor) -> Tensor:
        return (x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)

    def answer(self, pooled: Tensor) -> Tensor:
        return self.classify(pooled)


def found(ids: Tensor = IDS, **parts: Callable[..., Tensor]) -> list[str]:
    torch.manual_seed(0)
    module = type("Changed", (Classifier,), parts)()
    report = attn_guard.check(module, ids, masks={"keep": "attend"}, preview=True)
    return [finding.code for finding in report if finding.fails]


def test_right() -> None:
    assert found() == []


def test_padding_that_comes_in_by_a_second_look_up() -> None:
    def forward(self: Classifier, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        keep = torch.ones_like(ids) if keep is None else keep
        self.attend(self.positions(self.embedding(ids)), keep.bool())
        return self.answer(self.attend(self.embedding(ids), torch.ones_like(keep).bool()).mean(1))

    assert found(forward=forward) == ["ATN212"]


def test_padding_of_ids_in_two_tables() -> None:
    def forward(self: Classifier, ids: Tensor, keep: Tensor | None = None) -> Tensor:
        keep = torch.ones_like(ids) if keep is None else keep
        x = self.positions(self.embedding(ids) + self.embedding.weight.flip(0)[ids])
        return self.answer(self.pool(self.attend(x, keep.bool()), keep))

    assert found(forward=forward) == []


@pytest.mark.parametrize(
    "answer",
    [
        lambda self, pooled: self.classify(pooled - pooled.mean(0)),
        lambda self, pooled: self.classify(nn.functional.normalize(pooled, dim=0)),
        lambda self, pooled: self.classify(pooled.roll(1, 0) + pooled),
    ],
)
def test_samples_are_mixed_after_pooling(answer: Callable[..., Tensor]) -> None:
    assert found(answer=answer) == ["ATN404"]


def test_the_line_that_mixes_pooled_samples_is_blamed() -> None:
    def answer(self: Classifier, pooled: Tensor) -> Tensor:
        centred = pooled - pooled.mean(0)
        return self.classify(centred)

    torch.manual_seed(0)
    module = type("Changed", (Classifier,), {"answer": answer})()
    (finding,) = attn_guard.check(module, IDS, masks={"keep": "attend"}).findings
    assert finding.location.line == answer.__code__.co_firstlineno + 1


@pytest.mark.parametrize(
    "answer",
    [
        lambda self, pooled: self.classify(pooled) @ self.classify(pooled).mT,
        lambda self, pooled: self.classify(pooled).softmax(-1),
        lambda self, pooled: self.classify(pooled + 30 * pooled.mean(0) - 30 * pooled.mean(0)),
        lambda self, pooled: nn.functional.cross_entropy(self.classify(pooled), torch.zeros(3, dtype=torch.long)),
    ],
)
def test_similarities_of_all_pairs_losses_and_rounding_are_no_mixing(answer: Callable[..., Tensor]) -> None:
    assert found(answer=answer) == []


def test_one_vector_for_every_position() -> None:
    assert found(positions=lambda self, x: x + self.table[:, x.shape[1]]) == ["ATN707"]


def test_no_positions_at_all_are_no_wrong_positions() -> None:
    assert found(positions=lambda self, x: x) == []
