"""Which projection makes what: mix-ups, idle projections and outputs that go nowhere, in several styles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Severity
from tests.probe import silent_modules as designs
from tests.probe.modules import HEAD_DIM, STYLES, D, Decoder, FusedQkv, H, features, seeded
from tests.probe.silent_modules import Core, Parts

CODES = ["ATN403", "ATN406"]


def codes(module: nn.Module, *inputs: Tensor) -> list[str]:
    return [found.code for found in attn_guard.check(module, inputs or None, select=CODES)]


class Chosen(Parts):
    """Three projections; each part is made with the ones it is told, one after the other ("x": none)."""

    def __init__(self, q: str = "q", k: str = "k", v: str = "v") -> None:
        super().__init__()
        self.chosen = (q, k, v)

    def forward(self, x: Tensor) -> Tensor:
        made: dict[str, Tensor] = {"": x, "x": x}
        for name in sorted(self.chosen, key=len):
            made[name] = getattr(self, name[-1])(made.get(name[:-1], x)) if name != "x" else x
        q, k, v = (made[name].view(*x.shape[:2], H, HEAD_DIM).transpose(1, 2) for name in self.chosen)
        return self.merge(self.weigh(self.scores(q, k)) @ v)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (("q", "q", "v"), "the key is made like the query; k is never used"),
        (("k", "k", "v"), "the query is made like the key; q is never used"),
        (("q", "k", "k"), "the value is made like the key; v is never used"),
        (("q", "v", "v"), "the key is made like the value; k is never used"),
        (("q", "k", "q"), "the value is made like the query; v is never used"),
        (("q", "k", "x"), "the value is not projected; v is never used"),
        (("x", "k", "v"), "the query is not projected; q is never used"),
        (("q", "k", "kv"), "the value is projected from the key, not from the input"),
        (("q", "qk", "v"), "the key is projected from the query, not from the input"),
    ],
)
def test_the_wrong_projection(chosen: tuple[str, str, str], message: str) -> None:
    (found,) = attn_guard.check(seeded(Chosen, *chosen), select=CODES)
    assert (found.code, found.message, found.severity) == ("ATN403", message, Severity.ERROR)
    assert Path(found.location.path).parent.name == "probe"


@pytest.mark.parametrize("chosen", ["qkv", "kqv", "vqk"])
def test_any_order_of_three_projections_is_right(chosen: str) -> None:
    assert codes(seeded(Chosen, *chosen)) == []


class Thirds(nn.Module):
    """A fused projection, of which query, key and value take the parts that they are told."""

    def __init__(self, *parts: int, form: str = "chunk") -> None:
        super().__init__()
        self.parts, self.form = parts, form
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, _ = x.shape
        if self.form == "chunk":
            pieces = [part.view(batch, time, H, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)]
        else:
            pieces = list(self.qkv(x).view(batch, time, 3, H, -1).permute(2, 0, 3, 1, 4))
        q, k, v = (pieces[part] for part in self.parts)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("form", ["chunk", "permute"])
@pytest.mark.parametrize(
    ("parts", "wrong", "first"),
    [((0, 0, 2), "key", D), ((0, 1, 1), "value", 2 * D), ((1, 1, 2), "query", 0), ((0, 2, 2), "key", D)],
)
def test_the_wrong_part_of_a_fused_projection(form: str, parts: tuple[int, ...], wrong: str, first: int) -> None:
    (found,) = attn_guard.check(seeded(Thirds, *parts, form=form), select=CODES)
    assert found.code == "ATN403"
    assert found.message.startswith(f"the {wrong} is made like the ")
    assert f"columns {first} to {first + D - 1} of qkv is never used" in found.message


@pytest.mark.parametrize("parts", [(0, 1, 2), (2, 0, 1)])
def test_a_fused_projection_cut_in_any_order(parts: tuple[int, ...]) -> None:
    assert codes(seeded(Thirds, *parts)) == []


def test_columns_that_go_elsewhere_are_not_idle() -> None:
    """Query and key share a third on purpose; the rest of the fused projection feeds a gate."""

    class SharedAndGated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fused, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

        def forward(self, x: Tensor) -> Tensor:
            shared, v, gate = self.fused(x).chunk(3, -1)
            context = F.scaled_dot_product_attention(shared, shared, v)
            return self.out(context * gate.sigmoid())

    assert codes(seeded(SharedAndGated)) == []


def test_in_projection_of_a_built_in_layer_on_three_inputs() -> None:
    attention = nn.MultiheadAttention(14, 2, batch_first=True)
    assert codes(attention, *(torch.randn(2, time, 14) for time in (5, 7, 7))) == []
    apart = nn.MultiheadAttention(14, 2, batch_first=True, kdim=9, vdim=9)
    assert codes(apart, torch.randn(2, 5, 14), *(torch.randn(2, 7, 9) for _ in range(2))) == []


class Wrapped(nn.Module):
    """An attention inside a block; ``use`` says what becomes of its result."""

    def __init__(self, use: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.use, self.norm, self.attn = use, nn.LayerNorm(D), FusedQkv()
        self.ff = nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.ff(self.use(x, self.attn(self.norm(x))))


def test_a_result_that_is_never_added_back() -> None:
    (found,) = attn_guard.check(seeded(Wrapped, lambda x, _: x), select=CODES)
    assert (found.code, found.severity, found.location.module) == ("ATN406", Severity.ERROR, "attn")
    assert codes(seeded(Wrapped, lambda x, y: x + y)) == []


def test_one_skipped_layer_of_a_model() -> None:
    model = seeded(Decoder, layers=3)

    class Skipped(nn.Module):
        def __init__(self, attn: nn.Module) -> None:
            super().__init__()
            self.attn = attn

        def forward(self, x: Tensor) -> Tensor:
            self.attn(x)
            return torch.zeros_like(x)

    model.get_submodule("blocks.1").attn = Skipped(model.get_submodule("blocks.1.attn"))
    (found,) = attn_guard.check(model, select=CODES)
    assert (found.code, found.location.module) == ("ATN406", "blocks.1.attn.attn")


def test_a_context_that_is_dropped_inside_the_attention() -> None:
    class Forgetful(Core):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            self.weigh(self.scores(q, k)) @ v
            return self.merge(v)

    assert codes(seeded(Forgetful)) == ["ATN406"]


def test_weights_that_meet_no_value() -> None:
    class Valueless(Core):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            self.weigh(self.scores(q, k))
            return self.merge(v)

    (found,) = attn_guard.check(seeded(Valueless), select=CODES)
    assert (found.code, found.severity) == ("ATN406", Severity.ERROR)
    assert found.message == "the weights meet no value, and nothing that is returned depends on them"


def test_a_second_map_of_the_same_scores_that_nobody_asked_for_is_fine() -> None:
    class Hard(Core):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            scores = self.scores(q, k)
            _soft = scores.softmax(-1)  # a map for those who want it, which this call does not return
            weights = scores.softmax(-1)
            return self.merge(weights @ v)

    assert codes(seeded(Hard)) == []


def test_only_the_residual_is_returned() -> None:
    class Residual(Core):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            return x

    assert codes(seeded(Residual)) == ["ATN406"]


def test_attention_computed_for_its_weights() -> None:
    class Map(Core):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            weights = self.weigh(self.scores(q, k))
            self.merge(weights @ v)
            return weights

    assert codes(seeded(Map)) == []


def test_a_branch_that_ends_with_its_attention() -> None:
    """An auxiliary branch whose result is only used in training: the whole of it goes nowhere."""

    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main, self.side, self.attn = FusedQkv(), nn.Linear(D, D), FusedQkv()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor] | Tensor:
            side = self.attn(self.side(x))
            main: Tensor = self.main(x)
            return (main, side) if self.training else main

    report = attn_guard.check(seeded(Auxiliary), select=CODES)
    assert [found.location.module for found in report if found.fails] == []


def test_an_output_projection_that_is_never_used() -> None:
    class Bare(Core):
        def merge(self, context: Tensor) -> Tensor:
            return context.transpose(1, 2).flatten(2)

    (found,) = attn_guard.check(seeded(Bare), select=CODES)
    assert (found.code, found.severity) == ("ATN406", Severity.WARNING)
    assert found.message == "the merged heads go on as they are; out is never used"


def test_no_output_projection_at_all() -> None:
    class Merged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(D, D) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (part(x).unflatten(-1, (H, HEAD_DIM)).transpose(1, 2) for part in (self.q, self.k, self.v))
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    assert codes(seeded(Merged)) == []


@pytest.mark.parametrize("style", STYLES)
def test_right_styles(style: str) -> None:
    assert codes(seeded(STYLES[style])) == []


@pytest.mark.parametrize("build", [designs.SharedQk, *designs.OPEN], ids=lambda build: str(build.__name__))
def test_right_designs(build: Callable[[], nn.Module]) -> None:
    module = seeded(build)
    width = next(child.in_features for child in module.modules() if isinstance(child, nn.Linear))
    assert codes(module, features(width=width)) == []


class TwoStreams(Core):
    """Words and their layout: each stream weighs its own values by scores that both make."""

    def forward(self, x: Tensor, layout: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        q, k, v = self.heads(x)
        p, r, w = self.heads(layout)
        scores, of_layout = self.scores(q, k), self.scores(p, r)
        placed = (scores.detach() + of_layout).softmax(-1) @ w
        return x + self.merge((scores + of_layout.detach()).softmax(-1) @ v), layout + self.merge(placed)


class Layered(nn.Module):
    """Layers over two streams, of which the first is returned; ``dropped`` is a layer whose second result is lost."""

    def __init__(self, dropped: int | None = None) -> None:
        super().__init__()
        self.layers, self.dropped = nn.ModuleList(TwoStreams() for _ in range(3)), dropped

    def forward(self, x: Tensor) -> Tensor:
        layout = x.flip(-1)
        for number, layer in enumerate(self.layers):
            x, moved = layer(x, layout)
            layout = layout if number == self.dropped else moved
        return x


def test_the_second_stream_ends_in_the_last_layer() -> None:
    assert codes(seeded(Layered)) == []


def test_a_second_stream_that_is_lost_from_the_beginning() -> None:
    assert codes(seeded(Layered, 0)) == ["ATN406"]
