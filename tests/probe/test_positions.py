"""Whether a module knows the order of its inputs, where its positions are added, and padding on the left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from tests.probe import modules
from tests.probe.modules import CAUSAL_STYLES, STYLES, Block, D, Decoder, features, seeded
from tests.probe.silent_modules import Alibi, KeyConvolution, RelativeTable, Rotary

POSITIONS = ["ATN703", "ATN704", "ATN707"]


def codes(module: nn.Module, x: Tensor | None = None, **promises: object) -> set[str]:
    report = attn_guard.check(module, None if x is None else (x,), select=POSITIONS, **promises)  # type: ignore[arg-type]
    return set(report.codes)


class Placed(nn.Module):
    """Blocks after something that is added to the features."""

    def __init__(self, add: Callable[[nn.Module, Tensor], Tensor], causal: bool = False, layers: int = 1) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(32, D))
        self.places = nn.Embedding(32, D)
        self.bias = nn.Parameter(torch.randn(D))
        self.register_buffer("fixed", torch.randn(32, 1, D))
        styles = CAUSAL_STYLES if causal else STYLES
        self.blocks = nn.Sequential(*(Block(styles["fused qkv"]()) for _ in range(layers)))
        self.add = add

    def forward(self, x: Tensor) -> Tensor:
        after: Tensor = self.blocks(self.add(self, x))
        return after


RIGHT = {
    "a slice of a table": lambda m, x: x + m.table[: x.size(1)],
    "an embedding of the positions": lambda m, x: x + m.places(torch.arange(x.size(1))),
    "an embedding, the same for each sample": lambda m, x: x + m.places(torch.arange(x.size(1)).expand(x.shape[:2])),
    "a buffer, turned": lambda m, x: x + m.fixed[: x.size(1)].transpose(0, 1),
    "in place": lambda m, x: x.clone().add_(m.table[: x.size(1)]),
}
ALONG_THE_BATCH = {
    "a slice by the batch": lambda m, x: x + m.fixed[: x.size(0)],
    "an embedding of the sample": lambda m, x: x + m.places(torch.arange(x.size(0)))[:, None],
}
ONE_VECTOR = {
    "one row of the table": lambda m, x: x + m.table[x.size(1)],
    "an embedding of the length": lambda m, x: x + m.places(torch.tensor([x.size(1)])),
    "an embedding of one place for all": lambda m, x: x + m.places(torch.full((x.size(1),), 3)),
}
NONE_AT_ALL = {"nothing": lambda m, x: x, "a bias": lambda m, x: x + m.bias}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("add", RIGHT.values(), ids=RIGHT)
def test_positions_as_they_should_be(add: Callable[..., Tensor], causal: bool) -> None:
    assert codes(seeded(Placed, add, causal), positions=True) == set()


@pytest.mark.parametrize("add", ALONG_THE_BATCH.values(), ids=ALONG_THE_BATCH)
def test_positions_along_the_batch(add: Callable[..., Tensor]) -> None:
    assert codes(seeded(Placed, add)) == {"ATN707"}
    assert codes(seeded(Placed, add), positions=True) == {"ATN707"}
    assert codes(seeded(Placed, add), features(batch=5, time=5)) == {"ATN707"}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("add", ONE_VECTOR.values(), ids=ONE_VECTOR)
def test_one_vector_for_every_position(add: Callable[..., Tensor], causal: bool) -> None:
    assert codes(seeded(Placed, add, causal)) == {"ATN707"}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("add", NONE_AT_ALL.values(), ids=NONE_AT_ALL)
def test_no_positions(add: Callable[..., Tensor], causal: bool) -> None:
    assert codes(seeded(Placed, add, causal)) == set()
    assert codes(seeded(Placed, add, causal), positions=True) == {"ATN703"}
    assert codes(seeded(Placed, add, causal, layers=2), positions=True) == {"ATN703"}


def test_a_type_embedding_beside_positions() -> None:
    def both(module: nn.Module, x: Tensor) -> Tensor:
        return RIGHT["a slice of a table"](module, ONE_VECTOR["an embedding of one place for all"](module, x))

    assert codes(seeded(Placed, both), positions=True) == set()


def test_time_before_batch() -> None:
    class TimeFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("fixed", torch.randn(32, 1, D))
            self.attention = nn.MultiheadAttention(D, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.get_buffer("fixed")[: x.size(0)]
            attended: Tensor = self.attention(x, x, x)[0]
            return attended

    assert codes(seeded(TimeFirst), batch_first=False) == set()
    assert codes(seeded(TimeFirst)) == set()


@pytest.mark.parametrize("build", [Rotary, Alibi, RelativeTable, KeyConvolution])
def test_order_is_known_by_other_means(build: Callable[[], nn.Module]) -> None:
    assert codes(seeded(build), causal=True, positions=True) == set()


def test_a_language_model_without_positions_is_blamed_where_it_looks_up_its_tokens() -> None:
    (found,) = attn_guard.check(seeded(Decoder), positions=True, select=POSITIONS)
    lines = Path(modules.__file__).read_text(encoding="utf-8").splitlines()
    assert (found.code, "embed" in lines[found.location.line - 1]) == ("ATN703", True)


class LeftPadded(nn.Module):
    """Token ids and a mask; ``count`` gives the positions."""

    def __init__(self, count: Callable[[Tensor], Tensor] | None, masked: bool = True) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(29, D), nn.Embedding(32, D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, 29)
        self.count, self.masked = count, masked

    def forward(self, ids: Tensor, keep: Tensor) -> Tensor:
        x = self.words(ids)
        if self.count is not None:
            x = x + self.places(self.count(keep))
        q, k, v = (part.unflatten(-1, (3, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        time = ids.shape[1]
        seen = torch.ones(time, time, dtype=torch.bool).tril()
        if self.masked:
            seen = (seen & keep.bool()[:, None, None]) | torch.eye(time, dtype=torch.bool)
        context = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.out(context.transpose(1, 2).flatten(2))


def from_the_edge(keep: Tensor) -> Tensor:
    return torch.arange(keep.shape[1])


def from_the_first_token(keep: Tensor) -> Tensor:
    return (keep.long().cumsum(-1) - 1).clamp(min=0)


@pytest.mark.parametrize(
    ("count", "side", "expected"),
    [
        (from_the_edge, "left", {"ATN704"}),
        (from_the_edge, "right", set()),
        (from_the_edge, None, set()),
        (from_the_first_token, "left", set()),
        (None, "left", set()),
    ],
)
def test_padding_on_the_left(count: Callable[[Tensor], Tensor] | None, side: str | None, expected: set[str]) -> None:
    module = seeded(LeftPadded, count)
    assert codes(module, masks={"keep": "attend"}, padding_side=side) == expected


def test_padding_whose_content_matters_is_another_fault() -> None:
    module = seeded(LeftPadded, None, masked=False)
    assert codes(module, masks={"keep": "attend"}, padding_side="left") == set()
    report = attn_guard.check(module, masks={"keep": "attend"}, padding_side="left")
    assert "ATN212" in report.codes
