"""What depends on what, against an independent brute force; and splits and merges of heads that mix positions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import attn_guard
from attn_guard.anatomy import StepKind
from tests.probe import silent_modules
from tests.probe.modules import CAUSAL_STYLES, STYLES, CrossAttention, D, Decoder, Sdpa, features, seeded
from tests.probe.silent_modules import Core


def brute_force(module: nn.Module, x: Tensor) -> Tensor:
    """[output position, input position]: the module is called once for each changed position."""
    time = x.shape[1]
    found = torch.zeros(time, time, dtype=torch.bool)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        before = module(x)
        for position in range(time):
            changed = x.clone()
            changed[:, position] = torch.randn(x.shape[0], x.shape[2], generator=generator)
            found[:, position] = (module(changed) - before).abs().amax(dim=(0, 2)) > 1e-6
    return found


@pytest.mark.parametrize("style", [*STYLES, *(f"causal {style}" for style in CAUSAL_STYLES)])
def test_the_map_of_a_module_is_that_of_brute_force(style: str) -> None:
    build = STYLES.get(style) or CAUSAL_STYLES[style.removeprefix("causal ")]
    module = seeded(build)
    seen = attn_guard.xray(module, features())
    assert seen.streams.influence is not None
    expected = brute_force(module, features())
    assert torch.equal(seen.streams.influence, expected)
    assert seen.sites[0].site.causal is not bool(expected.triu(1).any())


class Masked(Core):
    """Any mask, True where the key is hidden."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self.hidden = hidden

    def hide(self, scores: Tensor) -> Tensor:
        return scores.masked_fill(self.hidden, -torch.inf)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.integers(2, 7), st.integers(0, 2**32 - 1))
def test_any_mask(time: int, seed: int) -> None:
    hidden = torch.rand(time, time, generator=torch.Generator().manual_seed(seed)) < 0.5
    hidden.fill_diagonal_(False)
    module = seeded(Masked, hidden)
    seen = attn_guard.xray(module, features(time=time))
    assert seen.streams.influence is not None
    assert torch.equal(seen.streams.influence, ~hidden)
    assert seen.sites[0].site.causal is not bool((~hidden).triu(1).any())


def test_ids_count_by_their_embeddings() -> None:
    seen = attn_guard.xray(seeded(Decoder), torch.randint(29, (2, 7), generator=torch.Generator().manual_seed(0)))
    assert seen.streams.influence is not None
    assert torch.equal(seen.streams.influence, torch.ones(7, 7, dtype=torch.bool).tril())


def scrambled(module: nn.Module, x: Tensor) -> set[StepKind]:
    (found,) = attn_guard.xray(module, x).sites
    return {step.kind for step in found.site.steps if step.scrambles}


class ViewedStraight(Core):
    """The split that lacks its transpose."""

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, time, width = x.shape
        q, k, v = (part(x).view(batch, 3, time, width // 3) for part in (self.q, self.k, self.v))
        return q, k, v

    def hide(self, scores: Tensor) -> Tensor:
        return scores


class ValueViewedStraight(silent_modules.Encoder):
    """Only the value is split without its transpose."""

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, _ = super().heads(x)
        return q, k, self.v(x).view(x.shape[0], 3, x.shape[1], -1)


class QueryViewedStraight(silent_modules.Encoder):
    """Only the query is split without its transpose."""

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        _, k, v = super().heads(x)
        return self.q(x).view(x.shape[0], 3, x.shape[1], -1), k, v


class KeyViewedStraight(silent_modules.Encoder):
    """Only the key is split without its transpose."""

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, _, v = super().heads(x)
        return q, self.k(x).view(x.shape[0], 3, x.shape[1], -1), v


class MergedStraight(silent_modules.Encoder):
    """The merge that lacks its transpose."""

    def merge(self, context: Tensor) -> Tensor:
        batch, heads, time, head_dim = context.shape
        merged: Tensor = self.out(context.reshape(batch, time, heads * head_dim))
        return merged


# Lengths that heads divide and that they do not, and as many samples or steps as heads.
SHAPES = [(1, 5), (2, 6), (3, 3), (3, 7)]


@pytest.mark.parametrize(("batch", "time"), SHAPES)
@pytest.mark.parametrize("build", [ViewedStraight, QueryViewedStraight, KeyViewedStraight, ValueViewedStraight])
def test_a_split_without_transpose_is_seen_at_every_length(build: type[nn.Module], batch: int, time: int) -> None:
    """Also where time divides by heads, so that whole rows move and only their order is wrong.

    With as many steps as heads, the shapes say that the heads stand where the positions should."""
    (found,) = attn_guard.xray(seeded(build), features(batch, time)).sites
    assert any(step.scrambles for step in found.site.find(StepKind.SPLIT)) or found.influence.over_heads


@pytest.mark.parametrize(("batch", "time"), SHAPES)
def test_a_merge_without_transpose_is_seen_at_every_length(batch: int, time: int) -> None:
    assert scrambled(seeded(MergedStraight), features(batch, time)) == {StepKind.MERGE}


@pytest.mark.parametrize("time", [3, 6])
@pytest.mark.parametrize(
    "build",
    [
        *(STYLES[name] for name in ("fused qkv", "multi-query", "built-in", "sdpa, one head of keys")),
        silent_modules.HeadsFirstInBatch,
        silent_modules.SinkToken,
        silent_modules.SharedKv,
        silent_modules.KeyConvolution,
        silent_modules.ClassToken,
        silent_modules.ReducedKeys,
        silent_modules.Perceiver,
        silent_modules.PerceiverConcat,
        silent_modules.Pooling,
    ],
)
def test_no_scramble_in_what_is_right(build: Callable[[], nn.Module], time: int) -> None:
    for found in attn_guard.xray(seeded(build), features(time=time)).sites:
        assert not any(step.scrambles for step in found.site.steps)


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_no_scramble_in_grouped_heads(key_heads: int) -> None:
    module = seeded(Sdpa, key_heads=key_heads, width=28, heads=4)
    assert scrambled(module, features(time=4, width=28)) == set()


def test_no_scramble_in_cross_attention() -> None:
    for memory in (5, 6):
        (found,) = attn_guard.xray(seeded(CrossAttention), (features(time=5), features(time=memory, seed=1))).sites
        assert not any(step.scrambles for step in found.site.steps)
        assert found.site.cross is True


@pytest.mark.parametrize("shift", [0, 1])
def test_no_scramble_in_windows(shift: int) -> None:
    image = torch.randn(2, 4, 6, D, generator=torch.Generator().manual_seed(0))
    assert scrambled(seeded(silent_modules.SwinWindows, shift), image) == set()


@pytest.mark.parametrize("build", [silent_modules.PixelAttention, silent_modules.ImageHeads])
def test_no_scramble_in_images(build: type[nn.Module]) -> None:
    image = torch.randn(2, D, 3, 5, generator=torch.Generator().manual_seed(0))
    assert scrambled(seeded(build), image) == set()


class PixelsReadAsRows(nn.Module):
    """Channels × pixels read as pixels × channels, for one of query, key and value."""

    def __init__(self, wrong: int) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Conv2d(D, D, 1) for _ in range(3))
        self.out = nn.Conv2d(D, D, 1)
        self.wrong = wrong

    def forward(self, image: Tensor) -> Tensor:
        q, k, v = (self.rows(part(image), number == self.wrong) for number, part in enumerate(self.parts))
        context = (q @ k.mT * (D // 3) ** -0.5).softmax(-1) @ v
        mixed: Tensor = self.out(context.mT.reshape(image.shape))
        return mixed

    @staticmethod
    def rows(x: Tensor, wrong: bool) -> Tensor:
        samples, channels, pixels = x.shape[0] * 3, x.shape[1] // 3, x.shape[2] * x.shape[3]
        return x.reshape(samples, pixels, channels) if wrong else x.reshape(samples, channels, pixels).mT


@pytest.mark.parametrize("wrong", [-1, 0, 1, 2])
def test_pixels_read_as_rows(wrong: int) -> None:
    image = torch.randn(2, D, 2, 5, generator=torch.Generator().manual_seed(0))
    assert scrambled(seeded(PixelsReadAsRows, wrong), image) == ({StepKind.SPLIT} if wrong >= 0 else set())


def test_no_scramble_where_a_picture_is_mixed_as_it_is() -> None:
    class RawValue(nn.Module):
        """Queries and keys are projected, and the picture itself is mixed."""

        def __init__(self) -> None:
            super().__init__()
            self.to_qk, self.out = nn.Conv2d(D, 2 * D, 1), nn.Conv2d(D, D, 1)

        def forward(self, x: Tensor) -> Tensor:
            q, k = self.to_qk(x).flatten(2).chunk(2, dim=1)
            weights = (q.transpose(1, 2) @ k * D**-0.5).softmax(-1)
            return self.out((x.flatten(2) @ weights.transpose(1, 2)).view(x.shape))

    picture = torch.randn(2, D, 5, 3, generator=torch.Generator().manual_seed(0))
    (anatomy,) = attn_guard.xray(seeded(RawValue), (picture,), {}).sites
    assert anatomy.influence.scrambled_split is None
