"""Decoding with a cache against the full pass: every style of cache, right and wrong, and what is left alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.contract import Contract
from attn_guard.findings import Severity
from attn_guard.probe.decoder import Decoder, Run
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.ways_of_decoding import decoders
from attn_guard.probe.xray import XRay, find_call
from tests.probe import cached_modules
from tests.probe.cached_modules import (
    FAULTS,
    HEAD_DIM,
    STYLES,
    BufferCache,
    FlagCache,
    LanguageModel,
    Pair,
    Parts,
    TupleCache,
)
from tests.probe.cached_modules import seen as visible
from tests.probe.modules import seeded

CACHES = ["ATN701", "ATN702"]
MODULES = Path(cached_modules.__file__)


def seen(module: nn.Module) -> XRay:
    found, _ = find_call(module, Contract())
    assert found is not None
    return found


def marked(text: str) -> int:
    lines = MODULES.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# marked {text}"))


def steps_taken(monkeypatch: pytest.MonkeyPatch, module: nn.Module) -> int:
    """How many calls of a module are made to decode with it."""
    taken = 0
    run = Decoder.run

    def counted(*args: Any) -> Run:
        nonlocal taken
        taken += 1
        return run(*args)

    monkeypatch.setattr(Decoder, "run", counted)
    assert seen(module).decoded is None
    return taken


@pytest.mark.parametrize("style", STYLES)
def test_a_right_cache_is_decoded_to_its_end(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_taken(monkeypatch, seeded(STYLES[style])) >= 5 + 4 + 2 + 1


@pytest.mark.parametrize("style", STYLES)
def test_nothing_is_said_of_a_right_cache(style: str) -> None:
    report = attn_guard.check(seeded(STYLES[style]), causal=True, preview=True)
    assert list(report) == [], str(report)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("style", ["tuple", "rolling", "flag"])
def test_other_dtypes(style: str, dtype: torch.dtype) -> None:
    assert seen(seeded(STYLES[style]).to(dtype)).decoded is None


@pytest.mark.parametrize(
    ("build", "fault", "code", "position"), FAULTS, ids=lambda part: getattr(part, "__name__", None)
)
def test_a_fault_is_found_at_its_step(build: Callable[..., nn.Module], fault: str, code: str, position: int) -> None:
    report = attn_guard.check(seeded(build, fault), select=CACHES)
    (found,) = report
    assert (found.code, found.severity) == (code, Severity.WARNING)
    assert f"position {position} " in found.message or f"with {position or 'no'} position" in found.message
    assert found.location.path.endswith("cached_modules.py")
    assert found.consequences == (("ATN701",) if code == "ATN702" else ())


@pytest.mark.parametrize("declared", [None, "layer_past"])
def test_a_triangle_from_the_top_left_is_named(declared: str | None) -> None:
    (found,) = attn_guard.check(seeded(TupleCache, "aligned at the top"), causal=True, cache=declared)
    assert (found.code, found.severity) == ("ATN216", Severity.ERROR if declared else Severity.WARNING)
    assert "with 1 position in the cache" in found.message
    assert found.consequences == ("ATN701",)


def test_positions_that_start_again_are_blamed_and_not_what_reads_them() -> None:
    (found,) = attn_guard.check(seeded(LanguageModel, "restarts"), select=CACHES)
    assert found.location.line == marked("positions")


def test_the_module_that_goes_wrong_first_is_named() -> None:
    (found,) = attn_guard.check(seeded(LanguageModel, "shares the first layer's cache"), select=CACHES)
    assert found.location.module == "layers.1"


def test_a_declared_cache_makes_it_an_error() -> None:
    (found,) = attn_guard.check(seeded(TupleCache, "twice"), cache="layer_past", select=CACHES)
    assert found.severity is Severity.ERROR


def test_a_declared_cache_of_any_name() -> None:
    class Renamed(TupleCache):
        def forward(self, x: Tensor, memories: Any = None) -> Any:  # type: ignore[override]
            return super().forward(x, memories, use_cache=True)

    assert list(attn_guard.check(seeded(Renamed), cache="memories", select=CACHES)) == []
    assert attn_guard.check(seeded(Renamed, "twice"), cache="memories", select=CACHES).codes == {"ATN701": 1}
    assert list(attn_guard.check(seeded(Renamed, "twice"), select=CACHES)) == []


class Raising(TupleCache):
    """Fails as soon as there is a cache."""

    def forward(self, x: Tensor, layer_past: Any = None, use_cache: bool = False) -> Any:
        if layer_past is not None:
            raise ValueError("no room")
        return super().forward(x, layer_past, use_cache)


def test_decoding_that_raises() -> None:
    assert list(attn_guard.check(seeded(Raising), select=CACHES)) == []
    (found,) = attn_guard.check(seeded(Raising), cache="layer_past", select=CACHES)
    assert (found.code, found.message) == ("ATN701", "decoding raises ValueError with 1 position in the cache")
    assert found.found == "no room"
    assert found.location.path.endswith("test_decoding.py")


class Open(TupleCache):
    """Looks ahead in the full pass: no cache can give the same."""

    def forward(self, x: Tensor, layer_past: Any = None, use_cache: bool = False) -> Any:
        q, k, v = self.heads(x)
        k, v = self.grown(layer_past, k, v)
        out = self.merged(nn.functional.scaled_dot_product_attention(q, k, v))
        return (out, (k, v)) if use_cache else out


class LengthScaled(TupleCache):
    """Queries are scaled by the logarithm of the whole length, which a step cannot know."""

    def heads(self, x: Tensor) -> list[Tensor]:
        q, k, v = super().heads(x)
        return [q * math.log(x.shape[1] + 1), k, v]


class Drawing(TupleCache):
    """Draws random numbers in evaluation, too."""

    def heads(self, x: Tensor) -> list[Tensor]:
        q, k, v = super().heads(x)
        return [q * torch.rand(()), k, v]


class GivenPositions(TupleCache):
    """The caller gives positions to a module with a cache; without, they count from 0."""

    def forward(  # type: ignore[override]
        self, x: Tensor, position_ids: Tensor | None = None, layer_past: Any = None
    ) -> Any:
        q, k, v = self.heads(x)
        start = 0 if position_ids is None else int(position_ids[0, 0])
        q, k = cached_modules.turned(q, start), cached_modules.turned(k, start)
        k, v = self.grown(layer_past, k, v)
        mask = cached_modules.seen(q.shape[2], k.shape[2])
        return self.merged(nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)), (k, v)


class NoCacheReturned(TupleCache):
    """Takes a cache and gives none."""

    def forward(self, x: Tensor, layer_past: Any = None, use_cache: bool = False) -> Any:
        return super().forward(x, layer_past, use_cache=False)


@pytest.mark.parametrize("build", [Open, LengthScaled, Drawing, GivenPositions, NoCacheReturned])
def test_what_cannot_be_decoded_to_the_same_end_is_left_alone(build: Callable[[], nn.Module]) -> None:
    assert list(attn_guard.check(seeded(build), select=CACHES)) == []


def test_a_chunk_needs_the_mask_that_a_layer_leaves_to_its_caller() -> None:
    class Masked(TupleCache):
        def forward(self, x: Tensor, mask: Tensor | None = None, layer_past: Any = None) -> Any:  # type: ignore[override]
            q, k, v = self.heads(x)
            k, v = self.grown(layer_past, k, v)
            mask = cached_modules.seen(q.shape[2], q.shape[2]) if mask is None and layer_past is None else mask
            return self.merged(nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)), (k, v)

    assert list(attn_guard.check(seeded(Masked), select=CACHES)) == []
    assert attn_guard.check(seeded(Masked), cache="layer_past", select=CACHES).codes == {"ATN701": 1}


def test_masks_that_are_all_left_out_of_a_dictionary_are_the_callers_as_well() -> None:
    class Masked(TupleCache):
        def forward(self, x: Tensor, masks: dict[str, Any] | None = None, layer_past: Any = None) -> Any:  # type: ignore[override]
            q, k, v = self.heads(x)
            k, v = self.grown(layer_past, k, v)
            mask = (masks or {}).get("causal")
            mask = cached_modules.seen(q.shape[2], q.shape[2]) if mask is None and layer_past is None else mask
            return self.merged(nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)), (k, v)

    x = torch.randn(2, 7, cached_modules.WIDTH, generator=torch.Generator().manual_seed(0))
    assert list(attn_guard.check(seeded(Masked), (x,), {"masks": {"causal": None}}, select=CACHES)) == []


@pytest.mark.parametrize("build", [BufferCache, FlagCache, TupleCache, LanguageModel])
@pytest.mark.parametrize("fault", ["", "restarts"])
def test_nothing_of_the_module_changes(build: Callable[..., nn.Module], fault: str) -> None:
    module = seeded(build, fault).train()
    state = {name: None if value is None else value.clone() for name, value in module._buffers.items()}
    parameters = [parameter.clone() for parameter in module.parameters()]
    plain = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    draws = torch.random.get_rng_state()
    attn_guard.check(module, select=CACHES)
    assert module.training
    assert torch.equal(torch.random.get_rng_state(), draws)
    assert {name: value for name, value in vars(module).items() if not name.startswith("_")} == plain
    assert all(torch.equal(now, kept) for now, kept in zip(module.parameters(), parameters, strict=True))
    for name, kept in state.items():
        now = module._buffers[name]
        assert (now is None) if kept is None else torch.equal(now, kept)  # type: ignore[arg-type]


def test_a_cache_that_the_user_hands_over_stays_empty() -> None:
    given: dict[str, Tensor] = {}
    module = seeded(cached_modules.DictCache, "forgets")
    x = torch.randn(2, 5, cached_modules.WIDTH, generator=torch.Generator().manual_seed(0))
    report = attn_guard.check(module, (x,), {"incremental_state": given}, select=CACHES)
    assert report.codes == {"ATN701": 1}
    assert given == {}


@pytest.mark.parametrize("fault", ["", "forgets", "twice", "unmasked with a cache"])
def test_an_empty_cache_of_the_users_is_filled_in_copies(fault: str) -> None:
    given, module = cached_modules.Kept(), seeded(cached_modules.ObjectCache, fault)
    x = torch.randn(2, 5, cached_modules.WIDTH, generator=torch.Generator().manual_seed(0))
    report = attn_guard.check(module, (x, given), select=CACHES)
    assert set(report.codes) == ({"ATN701"} if fault else set())
    assert given.pair is None


def test_a_leak_of_the_call_itself_explains_the_mismatch() -> None:
    x = torch.randn(2, 5, cached_modules.WIDTH, generator=torch.Generator().manual_seed(0))
    module = seeded(cached_modules.ObjectCache, "unmasked with a cache")
    report = attn_guard.check(module, (x, cached_modules.Kept()), causal=True)
    assert [(found.code, found.consequences) for found in report] == [("ATN214", ("ATN701",))]


def test_a_call_with_a_filled_cache_begins_anew() -> None:
    x, past = torch.randn(2, 7, cached_modules.WIDTH), torch.randn(2, 2, 7, 2, 12)
    filled = past[0].transpose(1, 2), past[1].transpose(1, 2)
    assert list(attn_guard.check(seeded(TupleCache), (x, filled), select=CACHES)) == []


def test_a_window_is_crossed() -> None:
    x = torch.randn(2, 5, cached_modules.WIDTH, generator=torch.Generator().manual_seed(0))
    module = seeded(cached_modules.RollingCache)
    module.WINDOW = 7  # type: ignore[assignment]
    assert attn_guard.check(module, (x,), window=7, select=CACHES).ok
    module.fault = "drops one too many"  # type: ignore[assignment]
    assert attn_guard.check(module, (x,), select=CACHES).ok
    assert attn_guard.check(module, (x,), window=7, select=CACHES).codes == {"ATN701": 1}


def test_modules_without_a_cache_are_not_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from attn_guard.reference import MultiHeadAttention

    assert steps_taken(monkeypatch, MultiHeadAttention(64, 8)) == 0


def test_the_parts_of_a_chunk() -> None:
    xray = seen(seeded(STYLES["tuple"]))
    with preserved(xray.module):
        (decoder,) = decoders(xray)
        main = decoder.arguments["x"]
        cut = decoder.cut(2, 4, cached=True)
    assert torch.equal(cut["x"], main[:, 2:4])
    assert cut["use_cache"] is True
    assert cut["layer_past"] is None


class ShortCache(TupleCache):
    """Right, but for the cache that it returns; rotary positions are counted from its length."""

    def forward(self, x: Tensor, layer_past: Any = None, use_cache: bool = False) -> Any:
        y, (k, v) = super().forward(x, layer_past, use_cache=True)
        if self.fault == "the last":
            return y, (k[:, :, -x.shape[1] :], v[:, :, -x.shape[1] :])  # cut to the last
        if self.fault == "all but the first":
            return y, (k[:, :, 1:], v[:, :, 1:])  # cut to all but the first
        return y, (k, v) if layer_past is None else layer_past


@pytest.mark.parametrize(
    ("fault", "held"), [("the last", "1 of 2"), ("all but the first", "0 of 1"), ("what came in", "1 of 2")]
)
def test_a_cache_that_is_too_short_comes_before_the_positions_counted_from_it(fault: str, held: str) -> None:
    (found,) = attn_guard.check(seeded(ShortCache, fault), select=CACHES)
    assert found.code == "ATN701"
    assert f"the cache holds {held} decoded positions" in found.notes
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    made = [number for number, line in enumerate(lines, 1) if line.endswith(f"# cut to {fault}")]
    assert not made or [found.location.line] == made


def test_keys_put_together_with_the_cache_in_the_wrong_order_are_blamed_where_they_are() -> None:
    (found,) = attn_guard.check(seeded(TupleCache, "in front"), select=CACHES)
    lines = MODULES.read_text(encoding="utf-8").splitlines()
    assert lines[found.location.line - 1].strip().startswith("return torch.cat((k, past[0])")


class Padded(Parts):
    """A cache beside a padding mask over all positions so far, (batch, past + time)."""

    lost, whole = False, True

    def forward(self, x: Tensor, attention_mask: Tensor | None = None, past: Pair | None = None) -> Any:
        q, k, v = self.heads(x)
        k, v = self.grown(past, k, v)
        hidden = ~visible(q.shape[2], k.shape[2])[None, None]
        if attention_mask is not None and (past is None or not self.lost):
            own = attention_mask if self.whole else self._all(attention_mask, past)
            hidden = hidden | ~own.bool()[:, None, None, :]
        weights = (q @ k.mT * HEAD_DIM**-0.5).masked_fill(hidden, torch.finfo(q.dtype).min).softmax(-1)
        return self.merged(weights @ v), (k, v)

    def _all(self, attention_mask: Tensor, past: Pair | None) -> Tensor:
        """Of a module that takes the mask of the new tokens only."""
        if past is not None:
            assert attention_mask.shape[1] == 1
        self.__dict__.setdefault("seen", []).append(attention_mask)
        return attention_mask if past is None else torch.cat(self.__dict__["seen"][-2:], 1)


@pytest.mark.parametrize(("lost", "whole"), [(True, True), (False, True), (False, False)])
def test_padding_that_the_cached_path_forgets(lost: bool, whole: bool) -> None:
    module = seeded(Padded)
    module.lost, module.whole = lost, whole  # type: ignore[assignment]
    promises: dict[str, Any] = {"causal": True, "cache": "past", "masks": {"attention_mask": "attend"}}
    report = attn_guard.check(module, **promises)
    assert [found.code for found in report if found.fails] == (["ATN209"] if lost else [])
    assert not lost or "in the cache" in report.findings[0].message


def test_causality_that_the_cached_path_forgets() -> None:
    report = attn_guard.check(seeded(TupleCache, "unmasked with a cache"), causal=True, cache="layer_past")
    (found,) = (finding for finding in report if finding.fails)
    assert (found.code, found.consequences) == ("ATN209", ("ATN701",))
