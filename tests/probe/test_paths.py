"""Paths that should agree: which are tried, what is said where they do not, and that nothing stays switched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import attn_guard
from attn_guard.findings import Finding, Severity
from attn_guard.probe.paths import switched
from tests.probe.modules import CAUSAL_STYLES, HEAD_DIM, STYLES, D, H, features, later, seeded
from tests.probe.silent_modules import Core, Parts


def failing(module: nn.Module, *args: Any, **promises: Any) -> list[Finding]:
    return [found for found in attn_guard.check(module, args or None, **promises) if found.fails]


def codes(module: nn.Module, *args: Any, **promises: Any) -> list[str]:
    return [found.code for found in failing(module, *args, **promises)]


def tried(module: nn.Module, *args: Any, **promises: Any) -> list[str]:
    seen = attn_guard.xray(module, args or None)
    return [path.text for path in switched(module, seen.call, [site.trace.module for site in seen.sites])]


class Switched(Parts):
    """Written out or fused, by an attribute of any name; each way may be faulty."""

    def __init__(self, name: str, value: object, fault: str = "", causal: bool = True) -> None:
        super().__init__()
        setattr(self, name, value)
        self.fault, self.masked, self.scaling = fault, causal, HEAD_DIM**-0.5

    def attend(self, x: Tensor, fused: bool) -> Tensor:
        q, k, v = self.heads(x)
        hidden = later(x.shape[1]) if self.masked else torch.zeros(x.shape[1], x.shape[1], dtype=torch.bool)
        scale = 1.0 if self.fault == f"scale, {fused}" else self.scaling
        keep = torch.ones_like(hidden) if self.fault == f"mask, {fused}" else ~hidden
        if fused:
            return self.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=keep, scale=scale))
        return self.merge((q @ k.mT * scale).masked_fill(~keep, -torch.inf).softmax(-1) @ v)


class Flash(Switched):
    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, bool(self.flash))


class UseSdpa(Switched):
    def forward(self, x: Tensor) -> Tensor:
        if self.use_sdpa:
            return self.attend(x, True)
        return self.attend(x, False)


class Chosen(Switched):
    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, fused=self.attn_impl == "sdpa") if self.attn_impl != "eager" else self.attend(x, False)


class InTraining(Switched):
    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, fused=not self.training)


class ByArgument(Switched):
    def forward(self, x: Tensor, need_weights: bool = False) -> tuple[Tensor, None]:
        return self.attend(x, fused=not need_weights), None


class AttentionsToo(Switched):
    def forward(self, x: Tensor, output_attentions: bool | None = None) -> Tensor:
        return self.attend(x, fused=not output_attentions)


class Remembering(Parts):
    """Attention over a memory whose padding mask acts only when the weights are asked for."""

    always = False

    def forward(
        self, x: Tensor, context: Tensor, context_mask: Tensor | None = None, return_weights: bool = False
    ) -> Any:
        (q, _, _), (_, k, v) = self.heads(x), self.heads(context)
        scores = q @ k.mT * HEAD_DIM**-0.5
        if context_mask is not None and (return_weights or self.always):
            scores = scores.masked_fill(~context_mask[:, None, None], -torch.inf)
        weights = scores.softmax(-1)
        return (self.merge(weights @ v), weights) if return_weights else self.merge(weights @ v)


@pytest.mark.parametrize("always", [False, True])
def test_padding_of_a_memory_that_only_one_path_masks(always: bool) -> None:
    module = seeded(Remembering)
    module.always = always  # type: ignore[assignment]
    x, memory = torch.randn(3, 5, D), torch.randn(3, 7, D)
    found = codes(module, x, memory, cross=True, masks={"context_mask": "attend"})
    assert found == ([] if always else ["ATN209"])


class Hiding(Parts):
    """Causal, with padding; one of the masks is lost when the weights are asked for, or when they are not."""

    lost, asked = "", True

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = False) -> Any:
        q, k, v = self.heads(x)
        scores = q @ k.mT * HEAD_DIM**-0.5
        loses = self.lost if need_weights is self.asked else ""
        if loses != "causal":
            scores = scores.masked_fill(later(x.shape[1]), -torch.inf)
        if key_padding_mask is not None and loses != "padding":
            scores = scores.masked_fill(key_padding_mask[:, None, None], torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        return (self.merge(weights @ v), weights) if need_weights else self.merge(weights @ v)


@pytest.mark.parametrize(("lost", "asked"), [("causal", True), ("padding", True), ("padding", False), ("", True)])
def test_a_mask_of_two_is_lost_on_one_path(lost: str, asked: bool) -> None:
    """With padding on the left, queries are left without any key: what they see then is nobody's business."""
    module = seeded(Hiding)
    module.lost, module.asked = lost, asked  # type: ignore[assignment]
    found = codes(module, features(), causal=True, masks={"key_padding_mask": "ignore"})
    assert found == (["ATN209"] if lost else [])


SWITCHES: list[tuple[type[Switched], str, object, str]] = [
    (Flash, "flash", True, "flash=False"),
    (Flash, "flash", False, "flash=True"),
    (UseSdpa, "use_sdpa", True, "use_sdpa=False"),
    (Chosen, "attn_impl", "sdpa", "attn_impl='eager'"),
    (InTraining, "unused", 0, "training mode and no dropout"),
    (ByArgument, "unused", 0, "need_weights=True"),
    (AttentionsToo, "unused", 0, "output_attentions=True"),
]
EACH = pytest.mark.parametrize(("build", "name", "value", "text"), SWITCHES)


@EACH
def test_a_switch_is_tried(build: type[Switched], name: str, value: object, text: str) -> None:
    assert text in tried(seeded(build, name, value))


@EACH
def test_paths_that_agree(build: type[Switched], name: str, value: object, text: str) -> None:
    assert codes(seeded(build, name, value), causal=True) == []


@EACH
def test_a_mask_that_is_lost_on_the_other_path(build: type[Switched], name: str, value: object, text: str) -> None:
    usual = codes(seeded(build, name, value), causal=True)
    assert usual == []
    fused = (name in ("flash", "use_sdpa", "attn_impl") and value in (True, "sdpa")) or name == "unused"
    (found,) = failing(seeded(build, name, value, f"mask, {not fused}"), causal=True)
    assert (found.code, found.severity) == ("ATN209", Severity.ERROR)
    assert text in found.message


@EACH
def test_a_mask_that_is_lost_as_called(build: type[Switched], name: str, value: object, text: str) -> None:
    fused = (name in ("flash", "use_sdpa", "attn_impl") and value in (True, "sdpa")) or name == "unused"
    (found,) = failing(seeded(build, name, value, f"mask, {fused}"), causal=True)
    assert found.code == "ATN209"
    assert found.consequences == ("ATN214",)
    assert "as called" in found.message


@EACH
def test_a_scale_that_one_path_ignores(build: type[Switched], name: str, value: object, text: str) -> None:
    fused = (name in ("flash", "use_sdpa", "attn_impl") and value in (True, "sdpa")) or name == "unused"
    (found,) = failing(seeded(build, name, value, f"scale, {not fused}"), causal=True)
    assert found.code == "ATN503"
    assert found.severity is (Severity.WARNING if build is InTraining else Severity.ERROR)
    assert text in found.message


def test_a_fault_of_the_path_that_runs_comes_first() -> None:
    (found,) = failing(seeded(Flash, "flash", False, "scale, False"), causal=True)
    assert found.code == "ATN101"
    assert "ATN503" in found.consequences


class Checkpointed(nn.Module):
    """Hands the mask to its block, or forgets to where it is checkpointed."""

    def __init__(self, forgets: bool) -> None:
        super().__init__()
        self.block, self.gradient_checkpointing, self.forgets = MaskedCore(), False, forgets

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        if self.gradient_checkpointing and self.training:
            mask = None if self.forgets else key_padding_mask
            found: Tensor = checkpoint(self.block, x, mask, use_reentrant=False)
            return found
        y: Tensor = self.block(x, key_padding_mask)
        return y


class MaskedCore(Parts):
    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        scores = self.scores(q, k)
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask[:, None, None], -torch.inf)
        return self.merge(scores.softmax(-1) @ v)


@pytest.mark.parametrize("forgets", [True, False])
def test_checkpointing(forgets: bool) -> None:
    found = failing(seeded(Checkpointed, forgets))
    assert [finding.code for finding in found] == (["ATN209"] if forgets else [])
    assert all("gradient_checkpointing=True" in finding.message for finding in found)


class CausalIfMasked(Parts):
    """Adds causality only where there is a mask of padding (or always)."""

    def __init__(self, always: bool) -> None:
        super().__init__()
        self.always, self.is_causal = always, True

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        hidden = torch.zeros(x.shape[1], x.shape[1], dtype=torch.bool)
        if key_padding_mask is not None:
            hidden = hidden | key_padding_mask[:, None, None]
        if key_padding_mask is not None or self.always:
            hidden = hidden | later(x.shape[1])
        return self.merge(self.scores(q, k).masked_fill(hidden, torch.finfo(q.dtype).min).softmax(-1) @ v)


@pytest.mark.parametrize("causal", [True, None])
def test_no_mask_against_one_that_blocks_nothing(causal: bool | None) -> None:
    (found,) = failing(seeded(CausalIfMasked, False), causal=causal)
    assert found.code == "ATN209"
    assert "as called" in found.message
    assert codes(seeded(CausalIfMasked, True), causal=causal) == []


class TestLeftAlone:
    @pytest.mark.parametrize("build", [*STYLES.values(), *CAUSAL_STYLES.values()], ids=[*STYLES, *CAUSAL_STYLES])
    def test_styles(self, build: Callable[[], nn.Module]) -> None:
        assert not {"ATN209", "ATN503"} & set(codes(seeded(build)))

    def test_rounding(self) -> None:
        class Rounding(Core):
            def __init__(self) -> None:
                super().__init__()
                self.fused = True

            def forward(self, x: Tensor) -> Tensor:
                y = super().forward(x)
                return y if self.fused else y + 1e4 - 1e4

        assert codes(seeded(Rounding), causal=True) == []

    def test_what_is_drawn_by_chance(self) -> None:
        class Noisy(Core):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x + torch.rand_like(x) if self.training else x)

        assert codes(seeded(Noisy), causal=True) == []

    def test_statistics_that_follow_the_data(self) -> None:
        class Centred(Core):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("mean", torch.zeros(D))

            def forward(self, x: Tensor) -> Tensor:
                mean = self.get_buffer("mean")
                if self.training:
                    mean.lerp_(x[0, 0], 0.1)
                return super().forward(x - mean)

        assert codes(seeded(Centred), causal=True) == []

    def test_dropout_in_training(self) -> None:
        class Dropping(Core):
            def __init__(self) -> None:
                super().__init__()
                self.attn_dropout = 0.4
                self.layer = nn.Dropout(0.5)

            def weigh(self, scores: Tensor) -> Tensor:
                return self.layer(F.dropout(super().weigh(scores), self.attn_dropout, self.training))

        assert "training mode and no dropout" in tried(seeded(Dropping))
        assert codes(seeded(Dropping), causal=True) == []

    def test_an_attribute_that_is_no_switch(self) -> None:
        class Plain(Core):
            def __init__(self) -> None:
                super().__init__()
                self.gated, self.flash_unread = False, False

            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x) * (0.5 if self.gated else 1.0)

        assert tried(seeded(Plain)) == []

    def test_a_path_that_cannot_run_here(self) -> None:
        class Missing(Core):
            def __init__(self) -> None:
                super().__init__()
                self.use_flash = False

            def forward(self, x: Tensor) -> Tensor:
                if self.use_flash:
                    raise ImportError("no such kernel")
                return super().forward(x)

        assert tried(seeded(Missing)) == ["use_flash=True"]
        assert codes(seeded(Missing), causal=True) == []


@EACH
def test_everything_is_as_before(build: type[Switched], name: str, value: object, text: str) -> None:
    module = seeded(build, name, value, "scale, True")
    before = {path: dict(vars(child)) for path, child in module.named_modules()}
    state = torch.random.get_rng_state()
    attn_guard.check(module, causal=True)
    assert torch.equal(state, torch.random.get_rng_state())
    for path, child in module.named_modules():
        assert vars(child).keys() == before[path].keys()
        assert all(vars(child)[key] is before[path][key] for key in before[path] if not key.startswith("_"))


@pytest.mark.parametrize("need_weights", [True, False])
def test_the_built_in_layer(need_weights: bool) -> None:
    layer = seeded(lambda: nn.MultiheadAttention(D, H, batch_first=True, dropout=0.2))
    x = features()
    report = attn_guard.check(layer, (x, x, x), {"need_weights": need_weights})
    assert report.ok, str(report)
