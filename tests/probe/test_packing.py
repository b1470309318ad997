"""Documents packed into one row, by the argument that holds their ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Finding
from tests.probe.modules import D, features, later, seeded
from tests.probe.silent_modules import Core, Parts


def failing(module: nn.Module, *args: Any, **promises: Any) -> list[Finding]:
    return [found for found in attn_guard.check(module, args or None, **promises) if found.fails]


class Packed(Parts):
    """``fault``: "ignores" the ids, keeps documents apart by the ids of the "first sample" only, or "mixes" features
    before attention."""

    def __init__(self, fault: str = "", causal: bool = True) -> None:
        super().__init__()
        self.fault, self.triangular = fault, causal

    def forward(self, x: Tensor, document_ids: Tensor | None = None) -> Tensor:
        if self.fault == "mixes":
            x = x + x.cumsum(dim=1)
        q, k, v = self.heads(x)
        hidden = later(x.shape[1]) & self.triangular
        if document_ids is not None and self.fault != "ignores":
            ids = document_ids[:1] if self.fault == "first sample" else document_ids
            hidden = hidden | (ids[:, None, :, None] != ids[:, None, None, :])
        return self.merge(self.scores(q, k).masked_fill(hidden, -torch.inf).softmax(-1) @ v)


class Required(Packed):
    def forward(self, x: Tensor, document_ids: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, document_ids)


BUILDS = pytest.mark.parametrize("build", [Packed, Required])


@BUILDS
@pytest.mark.parametrize("causal", [True, False])
def test_documents_apart(build: type[Packed], causal: bool) -> None:
    assert failing(seeded(build, "", causal), segments="document_ids") == []


@BUILDS
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("fault", ["ignores", "first sample"])
def test_documents_that_see_each_other(build: type[Packed], causal: bool, fault: str) -> None:
    (found,) = failing(seeded(build, fault, causal), segments="document_ids")
    assert found.code == "ATN219"
    assert "softmax" in source_line(found) or "masked_fill" in source_line(found)


def source_line(found: Finding) -> str:
    return Path(found.location.path).read_text(encoding="utf-8").splitlines()[found.location.line - 1]


def test_documents_that_meet_before_the_attention() -> None:
    (found,) = failing(seeded(Packed, "mixes"), segments="document_ids")
    assert found.code == "ATN219"
    assert "cumsum" in source_line(found)


def test_the_map_shows_the_first_row() -> None:
    (found,) = failing(seeded(Packed, "ignores"), features(time=4), segments="document_ids")
    assert found.leak_map == ((1, 0, 0, 0), (1, 1, 0, 0), (2, 2, 1, 0), (2, 2, 1, 1))


def test_nothing_is_said_without_a_declaration() -> None:
    assert failing(seeded(Packed, "ignores")) == []


def test_ids_of_one_row_are_given_as_one_row() -> None:
    class OneRow(Packed):
        def forward(self, x: Tensor, document_ids: Tensor | None = None) -> Tensor:
            assert document_ids is None or document_ids.dim() == 1
            return super().forward(x, None if document_ids is None else document_ids[None])

    args = features(), torch.zeros(5, dtype=torch.int32)
    assert failing(seeded(OneRow), *args, segments="document_ids") == []
    (found,) = failing(seeded(OneRow, "ignores"), *args, segments="document_ids")
    assert found.code == "ATN219"


def test_by_decorator_and_with_token_ids() -> None:
    @attn_guard.contract(causal=True, segments="document_ids")
    class Model(nn.Module):
        def __init__(self, fault: str) -> None:
            super().__init__()
            self.embed, self.layer, self.head = nn.Embedding(29, D), Packed(fault), nn.Linear(D, 29)

        def forward(self, ids: Tensor, document_ids: Tensor | None = None) -> Tensor:
            logits: Tensor = self.head(self.layer(self.embed(ids), document_ids))
            return logits

    assert failing(seeded(Model, "")) == []
    assert [found.code for found in failing(seeded(Model, "ignores"))] == ["ATN219"]


def test_an_argument_that_takes_no_ids() -> None:
    assert failing(seeded(Core), segments="document_ids", causal=True) == []
