"""Cross attention: which input asks, which is asked, and what is none of our business."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Finding, Severity
from tests.probe import silent_modules as designs
from tests.probe.modules import CrossAttention, D, H, features, seeded

CODES = ["ATN401", "ATN402"]


def only(module: nn.Module, *inputs: Tensor, cross: bool | None = None) -> list[Finding]:
    return list(attn_guard.check(module, inputs or None, cross=cross, select=CODES))


class Attend(nn.Module):
    """Multi-head attention of any two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))

    def forward(self, asks: Tensor, asked: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(-1, (H, -1)).transpose(1, 2)
            for part, x in ((self.q, asks), (self.k, asked), (self.v, asked))
        )
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A decoder layer; ``wiring`` says what its cross attention is given."""

    def __init__(self, wiring: str) -> None:
        super().__init__()
        self.wiring, self.own, self.cross, self.back = wiring, Attend(), Attend(), Attend()

    def forward(self, x: Tensor, memory: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = x + self.own(x, x)
        if self.wiring == "both":
            return x + self.cross(x, memory), memory + self.back(memory, x)
        pairs = {
            "right": (x, memory),
            "swapped": (memory, x),
            "ignored": (x, x),
            "joint": (x, torch.cat((x, memory), 1)),
        }
        return x + self.cross(*pairs[self.wiring])


class Sources(Layer):
    """The same under names that say nothing."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        return super().forward(a, b)


@pytest.mark.parametrize("cross", [True, None])
@pytest.mark.parametrize(("wiring", "code"), [("swapped", "ATN401"), ("ignored", "ATN402")])
@pytest.mark.parametrize("given", [True, False], ids=["as long as the other", "lengths of our own"])
def test_wrong_wirings(wiring: str, code: str, cross: bool | None, given: bool) -> None:
    inputs = (features(seed=1), features(seed=2)) if given else ()
    (found,) = only(seeded(Layer, wiring), *inputs, cross=cross)
    assert (found.code, found.severity) == (code, Severity.ERROR if cross else Severity.WARNING)
    assert found.location.module.startswith("cross")


@pytest.mark.parametrize("cross", [True, None, False])
@pytest.mark.parametrize("wiring", ["right", "joint", "both"])
def test_right_wirings(wiring: str, cross: bool | None) -> None:
    assert only(seeded(Layer, wiring), cross=cross) == []


@pytest.mark.parametrize("wiring", ["swapped", "ignored"])
def test_names_that_say_nothing_need_a_promise(wiring: str) -> None:
    inputs = features(seed=1), features(seed=2)
    assert only(seeded(Sources, wiring), *inputs) == []
    assert len(only(seeded(Sources, wiring), *inputs, cross=True)) == 1
    assert only(seeded(Layer, wiring), *inputs, cross=False) == []


class OwnNames(nn.Module):
    """Query, key and value as arguments, perhaps taken for one another."""

    def __init__(self, order: tuple[int, int, int]) -> None:
        super().__init__()
        self.order, self.attend = order, nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        given = (query, key, value)
        attended: Tensor = self.attend(*(given[place] for place in self.order), need_weights=False)[0]
        return attended


@pytest.mark.parametrize(("order", "code"), [((0, 1, 2), None), ((1, 0, 0), "ATN401"), ((0, 0, 0), "ATN402")])
def test_query_and_key_by_name(order: tuple[int, int, int], code: str | None) -> None:
    assert [found.code for found in only(seeded(OwnNames, order), cross=True)] == ([code] if code else [])
    assert only(seeded(OwnNames, order)) == []


def test_an_optional_memory_that_a_configuration_turns_off() -> None:
    class Optional(Attend):
        def forward(self, x: Tensor, encoder_hidden_states: Tensor | None = None) -> Tensor:
            return super().forward(x, x)

    module, x, memory = seeded(Optional), features(seed=1), features(time=7, seed=2)
    assert only(module, x, memory) == []
    assert [found.code for found in only(module, x, memory, cross=True)] == ["ATN402"]
    assert [found.code for found in only(module, cross=True)] == ["ATN402"]


def test_the_same_tensor_for_both_is_self_attention() -> None:
    x = features()
    assert only(seeded(Layer, "ignored"), x, x) == []


def test_latents_that_read_an_input() -> None:
    """Perceivers: the queries are learned, or come as the first argument."""

    class Latents(Attend):
        def forward(self, latents: Tensor, context: Tensor) -> Tensor:
            return super().forward(latents, torch.cat((latents, context), dim=1))

    class Resampler(Attend):
        def forward(self, context: Tensor, latents: Tensor) -> Tensor:
            return super().forward(latents, context)

    class Learned(Attend):
        def __init__(self) -> None:
            super().__init__()
            self.latents = nn.Parameter(torch.randn(1, 3, D))

        def forward(self, context: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(self.latents.expand(len(context), -1, -1), context)

    for build in (Latents, Resampler, Learned):
        assert list(attn_guard.check(seeded(build), preview=True)) == []
    assert only(seeded(Latents), cross=True) == []


@pytest.mark.parametrize("joint", [True, False], ids=["one attention over both", "a few tokens in between"])
def test_streams_that_meet(joint: bool) -> None:
    class Meeting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Attend(), Attend()

        def forward(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
            if joint:
                both = torch.cat((x, context), dim=1)
                both = self.a(both, both)
                return both[:, : x.shape[1]], both[:, x.shape[1] :]
            fused = self.a(context[:, :2], x)
            return self.b(x, torch.cat((x, fused), dim=1)), fused

    assert list(attn_guard.check(seeded(Meeting), preview=True)) == []


def test_a_memory_of_ids() -> None:
    class Translator(nn.Module):
        def __init__(self, looks: bool) -> None:
            super().__init__()
            self.looks, self.embed, self.attend = looks, nn.Embedding(29, D), Attend()

        def forward(self, tgt: Tensor, memory: Tensor) -> Tensor:
            x = self.embed(tgt)
            return self.attend(x, self.embed(memory) if self.looks else x)

    assert only(seeded(Translator, True)) == []
    assert [found.code for found in only(seeded(Translator, False))] == ["ATN402"]


def test_right_modules() -> None:
    assert only(seeded(CrossAttention)) == []
    assert only(seeded(CrossAttention), cross=True) == []
    assert only(nn.TransformerDecoderLayer(14, 2, 16, batch_first=True)) == []
    assert only(nn.TransformerDecoderLayer(14, 2, 16, batch_first=True), cross=True) == []
    for build in designs.OPEN:
        assert only(seeded(build)) == []


def test_a_memory_with_more_axes_than_a_sequence() -> None:
    class Images(nn.Module):
        """Text that reads several images, each of several patches: (batch, images, patches, features)."""

        def __init__(self, reads: bool) -> None:
            super().__init__()
            self.reads, self.attend = reads, Attend()

        def forward(self, x: Tensor, media: Tensor) -> Tensor:
            return self.attend(x, media.flatten(1, 2) if self.reads else x + 0 * media.mean())

    x = features()
    inputs = x, torch.randn(len(x), 2, 7, D, generator=torch.Generator().manual_seed(1))
    assert only(seeded(Images, True), *inputs, cross=True) == []
    assert [found.code for found in only(seeded(Images, False), *inputs, cross=True)] == ["ATN402"]


@pytest.mark.parametrize("swapped", [False, True])
def test_names_that_end_in_what_they_are(swapped: bool) -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend = Attend()

        def forward(self, inputs_kv: Tensor, inputs_q: Tensor) -> Tensor:
            return self.attend(inputs_kv, inputs_q) if swapped else self.attend(inputs_q, inputs_kv)

    x = features()
    inputs = torch.randn(len(x), 7, D, generator=torch.Generator().manual_seed(1)), x
    assert [found.code for found in only(seeded(Reader), *inputs, cross=True)] == (["ATN401"] if swapped else [])
