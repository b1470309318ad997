"""Masks that a caller hands over: in which form a module takes them, and which entry each score follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attn_guard
from attn_guard.contract import Contract, declared_contract
from attn_guard.findings import Finding, Report, Severity
from attn_guard.probe.calling import given
from attn_guard.probe.deliveries import Delivery, holes, masked_by
from attn_guard.probe.xray import XRay, find_call, look
from tests.probe.modules import D, H, features, later, seeded
from tests.probe.silent_modules import Core, Parts

Apply = Callable[[Tensor, Tensor], Tensor]


def masked(apply: Apply, name: str = "mask", causal: bool = False) -> nn.Module:
    """Self-attention of one mask argument; ``apply(scores, mask)`` gives the scores (batch, H, time, time) to weigh."""

    class Masked(Parts):
        def attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
            q, k, v = self.heads(x)
            scores = self.scores(q, k)
            if causal:
                scores = scores.masked_fill(later(x.shape[1]), torch.finfo(scores.dtype).min)
            scores = scores if mask is None else apply(scores, mask)
            return self.merge(scores.softmax(-1) @ v)

    namespace: dict[str, Any] = {}
    exec(f"def forward(self, x, {name}=None):\n    return self.attend(x, {name})", namespace)
    Masked.forward = namespace["forward"]
    return seeded(Masked)


LOW = torch.finfo(torch.float32).min


def seen(module: nn.Module, **promises: Any) -> XRay:
    found, _ = find_call(module, Contract(**promises).over(declared_contract(module)))
    assert found is not None
    return found


def delivered(module: nn.Module, **promises: Any) -> Delivery:
    (found,) = seen(module, **promises).handed.over
    return found


def failing(report: Report) -> list[Finding]:
    return [finding for finding in report if finding.fails]


# Name → how the mask is applied, the form that is found, what True is found to do.
RIGHT: dict[str, tuple[Apply, str, bool | None]] = {
    "True hides, (batch, keys)": (lambda s, m: s.masked_fill(m[:, None, None], LOW), "bk", True),
    "True keeps, (batch, keys)": (lambda s, m: s.masked_fill(~m[:, None, None], LOW), "bk", False),
    "0 hides, (batch, keys)": (lambda s, m: s.masked_fill(m[:, None, None] == 0, LOW), "bk", False),
    "where": (lambda s, m: torch.where(m[:, None, None], s, LOW), "bk", False),
    "(1 - mask) · lowest": (lambda s, m: s + (1.0 - m[:, None, None].float()) * LOW, "bk", False),
    "expanded to all queries": (
        lambda s, m: s.masked_fill(~m[:, None, None, :].expand(-1, -1, s.shape[-2], -1), LOW),
        "bk",
        False,
    ),
    "queries and keys": (lambda s, m: s.masked_fill(~(m[:, None, None] & m[:, None, :, None]), LOW), "bk", False),
    "(batch, 1, 1, keys)": (lambda s, m: s.masked_fill(m.expand(s.shape[0], 1, 1, s.shape[-1]), LOW), "b11k", True),
    "(batch, queries, keys)": (lambda s, m: s.masked_fill(~m.expand(*s[:, 0].shape)[:, None], LOW), "bqk", False),
    "(batch · heads, queries, keys)": (lambda s, m: s.masked_fill(m.view(s.shape), LOW), "nqk", True),
    "(queries, keys)": (lambda s, m: s.masked_fill(~m.expand(s.shape[-2:]), LOW), "qk", False),
}


@pytest.mark.parametrize("style", RIGHT)
def test_the_form_that_a_module_takes_is_found_and_nothing_is_reported(style: str) -> None:
    apply, axes, hides = RIGHT[style]
    module = masked(apply)
    found = delivered(module)
    assert (found.axes, found.hides_marked, found.meaning) == (axes, hides, None)
    assert found.reaches_scores
    assert list(attn_guard.check(module)) == []


@pytest.mark.parametrize(
    ("apply", "meaning"),
    [
        (RIGHT["True hides, (batch, keys)"][0], "True means ignore"),
        (RIGHT["0 hides, (batch, keys)"][0], "True means attend"),
        (lambda scores, mask: scores + mask[:, None, None], "added to the scores"),
    ],
)
def test_what_a_mask_is_seen_to_mean_is_printed_as_an_assumption(apply: Apply, meaning: str) -> None:
    expected = f"mask: {meaning}, as a call with such a mask shows"
    assert attn_guard.check(masked(apply)).assumptions == (expected,)
    assert attn_guard.check(masked(apply), masks={"mask": "ignore"}).assumptions == ()


@pytest.mark.parametrize("style", RIGHT)
def test_nothing_is_reported_where_its_meaning_is_promised(style: str) -> None:
    apply, _, hides = RIGHT[style]
    report = attn_guard.check(masked(apply), masks={"mask": "ignore" if hides else "attend"})
    assert list(report) == [], str(report)


@pytest.mark.parametrize("style", [name for name, (_, axes, _) in RIGHT.items() if axes == "bk"])
def test_each_score_follows_the_entry_of_its_own_key(style: str) -> None:
    (arrival,) = delivered(masked(RIGHT[style][0])).arrivals
    if style == "queries and keys":
        assert not arrival.by_query
        return
    batch, time = 3, 5 if H != 5 else 7
    own = torch.arange(batch).view(batch, 1, 1, 1) * time + torch.arange(time)
    assert torch.equal(arrival.entries, own.expand(batch, H, time, time).reshape(-1, time, time).to(arrival.entries))


@pytest.mark.parametrize("time", range(1, 6))
def test_no_sample_is_padding_alone(time: int) -> None:
    keep = holes(4, time)
    assert keep.any(dim=1).all()
    assert time == 1 or (~keep).any(dim=1).all()


def test_an_additive_mask_is_tried_where_flags_hide_nothing() -> None:
    found = delivered(masked(lambda scores, mask: scores + mask[:, None, None]))
    assert found.mask.is_floating_point()
    assert found.arrivals[0].by_key


@pytest.mark.parametrize(
    ("module", "calls"),
    [
        (nn.MultiheadAttention(D, H, batch_first=True), 3),
        (nn.TransformerDecoderLayer(D, H, 4 * D, batch_first=True), 5),
    ],
)
def test_a_layer_of_torch_is_called_once_for_each_mask(module: nn.Module, calls: int) -> None:
    called: list[object] = []
    module.register_forward_pre_hook(lambda *_: called.append(None))
    assert list(attn_guard.check(module)) == []
    assert len(called) == calls


def test_an_argument_that_is_no_mask_is_not_delivered() -> None:
    class Replaced(Parts):
        """True marks tokens that a learned one takes the place of, as in masked image models."""

        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.randn(D))

        def forward(self, x: Tensor, bool_masked_pos: Tensor | None = None, mask_ratio: float = 0.5) -> Tensor:
            if bool_masked_pos is not None:
                x = torch.where(bool_masked_pos[..., None], self.token, x)
            q, k, v = self.heads(x)
            return self.merge(self.scores(q, k).softmax(-1) @ v)

    module = seeded(Replaced)
    assert seen(module).handed.over == ()
    assert list(attn_guard.check(module)) == []


# Name → how the mask is applied, code, and the promises that the finding needs.
WRONG: dict[str, tuple[Apply, str, dict[str, Any]]] = {
    "rows, masked_fill": (lambda s, m: s.masked_fill(m[:, None, :, None], LOW), "ATN213", {}),
    "rows, added": (lambda s, m: s + (1.0 - m[:, None, :, None].float()) * LOW, "ATN213", {}),
    "heads outermost": (
        lambda s, m: s.flatten(0, 1).masked_fill(m.repeat(H, 1)[:, None], LOW).view(s.shape),
        "ATN208",
        {},
    ),
    "heads outermost, concatenated": (
        lambda s, m: s.flatten(0, 1).masked_fill(torch.cat([m] * H)[:, None], LOW).view(s.shape),
        "ATN208",
        {},
    ),
    "as it is": (lambda s, m: s.masked_fill(m.view(s.shape[0], s.shape[-1]), LOW), "ATN207", {}),
    "pairs without an axis for heads": (
        lambda s, m: s.masked_fill(m.view(s.shape[0], 1, s.shape[-1]) | m.view(s.shape[0], s.shape[-1], 1), LOW),
        "ATN207",
        {},
    ),
    "added as flags": (lambda s, m: s + m[:, None, None].float(), "ATN206", {"masks": {"mask": "attend"}}),
    "added as it is": (lambda s, m: s + m[:, None, None], "ATN206", {"masks": {"mask": "attend"}}),
    "hidden by both": (
        lambda s, m: s.masked_fill(m[:, None, None] & later(s.shape[-1]), LOW),
        "ATN221",
        {"masks": {"mask": "ignore"}, "causal": True},
    ),
    "kept by either": (
        lambda s, m: s.masked_fill(~(m[:, None, None] | ~later(s.shape[-1])), LOW),
        "ATN221",
        {"masks": {"mask": "attend"}, "causal": True},
    ),
}


@pytest.mark.parametrize("style", WRONG)
def test_a_wrong_mask_is_one_finding(style: str) -> None:
    apply, code, promises = WRONG[style]
    report = attn_guard.check(masked(apply), **promises)
    assert [found.code for found in failing(report)] == [code], str(report)


@pytest.mark.parametrize("style", ["rows, masked_fill", "heads outermost", "as it is"])
def test_what_is_only_inferred_is_a_warning(style: str) -> None:
    apply, code, _ = WRONG[style]
    for promises, severity in (({}, Severity.WARNING), ({"masks": {"mask": "ignore"}}, Severity.ERROR)):
        (found,) = failing(attn_guard.check(masked(apply), **promises))  # type: ignore[arg-type]
        assert (found.code, found.severity) == (code, severity)


@pytest.mark.parametrize("hides", [True, False])
def test_an_inferred_polarity_is_no_fault_by_itself(hides: bool) -> None:
    apply: Apply = (
        (lambda s, m: s.masked_fill(m[:, None, None], LOW))
        if hides
        else (lambda s, m: s.masked_fill(~m[:, None, None], LOW))
    )
    assert list(attn_guard.check(masked(apply))) == []


class Built(nn.Module):
    """`nn.MultiheadAttention` behind one mask argument."""

    def __init__(self, argument: str, prepare: Callable[[Tensor, int], Tensor], need_weights: bool) -> None:
        super().__init__()
        self.argument, self.prepare, self.need_weights = argument, prepare, need_weights
        self.attention = nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        options = {self.argument: self.prepare(mask, x.shape[1]), "need_weights": self.need_weights}
        context: Tensor = self.attention(x, x, x, **options)[0]
        return context


def pairs(mask: Tensor, time: int) -> Tensor:
    return mask[:, None].expand(-1, time, -1)


BUILT_IN: dict[str, tuple[str, Callable[[Tensor, int], Tensor], str | None]] = {
    "padding": ("key_padding_mask", lambda m, t: m, None),
    "padding, of float": ("key_padding_mask", lambda m, t: torch.zeros(m.shape).masked_fill(m, -torch.inf), None),
    "padding, of flags": ("key_padding_mask", lambda m, t: m.float(), "ATN206"),
    "one for each head": ("attn_mask", lambda m, t: pairs(m, t).repeat_interleave(H, 0), None),
    "heads outermost": ("attn_mask", lambda m, t: pairs(m, t).repeat(H, 1, 1), "ATN208"),
    "rows": ("attn_mask", lambda m, t: pairs(m, t).mT.repeat_interleave(H, 0), "ATN213"),
}


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("style", BUILT_IN)
def test_the_built_in_layer(style: str, need_weights: bool) -> None:
    argument, prepare, code = BUILT_IN[style]
    module = seeded(Built, argument, prepare, need_weights)
    report = attn_guard.check(module, masks={"mask": "ignore"})
    assert [found.code for found in failing(report)] == ([code] if code else []), str(report)


def test_fused_attention_understands_a_boolean_mask_and_adds_flags() -> None:
    class Fused(Parts):
        def __init__(self, cast: bool) -> None:
            super().__init__()
            self.cast = cast

        def forward(self, x: Tensor, keep: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            mask = keep[:, None, None].float() if self.cast else keep[:, None, None]
            return self.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))

    promises: dict[str, Any] = {"masks": {"keep": "attend"}}
    assert list(attn_guard.check(seeded(Fused, False), **promises)) == []
    (found,) = failing(attn_guard.check(seeded(Fused, True), **promises))
    assert found.code == "ATN206"


class Translator(nn.Module):
    """Ids of a source and a target; ``sources`` names what the masks of the two attentions are built from."""

    def __init__(self, own: str = "tgt", cross: str = "src") -> None:
        super().__init__()
        self.own, self.cross = own, cross
        self.embed = nn.Embedding(29, D)
        self.self_attention, self.cross_attention = (nn.MultiheadAttention(D, H, batch_first=True) for _ in range(2))

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        padding = {"src": src == 0, "tgt": tgt == 0}
        memory, x = self.embed(src), self.embed(tgt)
        x = x + self.self_attention(x, x, x, key_padding_mask=padding[self.own], need_weights=False)[0]
        context: Tensor = self.cross_attention(x, memory, memory, key_padding_mask=padding[self.cross])[0]
        return x + context


def ids(batch: int, time: int, seed: int) -> Tensor:
    drawn = torch.randint(1, 29, (batch, time), generator=torch.Generator().manual_seed(seed))
    drawn[:, -1] = 0
    return drawn


@pytest.mark.parametrize(("own", "cross", "wrong"), [("tgt", "src", 0), ("tgt", "tgt", 1), ("src", "src", 1)])
@pytest.mark.parametrize("lengths", [(5, 5), (5, 7)])
def test_masks_of_a_translator(own: str, cross: str, wrong: int, lengths: tuple[int, int]) -> None:
    module = seeded(Translator, own, cross)
    report = attn_guard.check(module, (ids(2, lengths[0], 1), ids(2, lengths[1], 2)))
    assert [found.code for found in failing(report)] == ["ATN222"] * wrong, str(report)


class Lengths(Parts):
    """Cross-attention over a memory of given lengths."""

    def __init__(self, of: str) -> None:
        super().__init__()
        self.of = of

    def forward(self, x: Tensor, memory: Tensor, x_lengths: Tensor, memory_lengths: Tensor) -> Tensor:
        q, _, _ = self.heads(x)
        _, k, v = self.heads(memory)
        lengths = x_lengths if self.of == "x" else memory_lengths
        hidden = torch.arange(memory.shape[1]) >= lengths[:, None]
        return self.merge(self.scores(q, k).masked_fill(hidden[:, None, None], LOW).softmax(-1) @ v)


@pytest.mark.parametrize(("of", "codes"), [("x", ["ATN222"]), ("memory", [])])
def test_lengths_of_the_wrong_input(of: str, codes: list[str]) -> None:
    arguments = (features(2, 5), features(2, 7), torch.tensor([3, 5]), torch.tensor([7, 4]))
    report = attn_guard.check(seeded(Lengths, of), arguments, cross=True)
    assert [found.code for found in failing(report)] == codes, str(report)


class TwoAttentions(nn.Module):
    """One mask for two attentions; True hides in the first, and keeps in the second on request."""

    def __init__(self, agree: bool) -> None:
        super().__init__()
        self.agree = agree
        self.first, self.second = Parts(), Parts()

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for part, hides in ((self.first, True), (self.second, self.agree)):
            q, k, v = part.heads(x)
            scores = part.scores(q, k)
            if mask is not None:
                scores = scores.masked_fill((mask if hides else ~mask)[:, None, None], LOW)
            x = x + part.merge(scores.softmax(-1) @ v)
        return x


@pytest.mark.parametrize(("agree", "codes"), [(True, []), (False, ["ATN205"])])
def test_two_attentions_that_read_one_mask_in_opposite_ways(agree: bool, codes: list[str]) -> None:
    found = failing(attn_guard.check(seeded(TwoAttentions, agree)))
    assert [(one.code, one.severity) for one in found] == [(code, Severity.WARNING) for code in codes]


@pytest.mark.parametrize(("wrong", "codes"), [(False, []), (True, ["ATN213"])])
def test_rows_are_hidden_at_one_of_two_places(wrong: bool, codes: list[str]) -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Parts(), Parts()

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            for part, on_rows in ((self.first, False), (self.second, wrong)):
                q, k, v = part.heads(x)
                scores = part.scores(q, k)
                if mask is not None:
                    hidden = mask[:, None, :, None] if on_rows else mask[:, None, None]
                    scores = scores.masked_fill(hidden, LOW)
                x = x + part.merge(scores.softmax(-1) @ v)
            return x

    found = failing(attn_guard.check(seeded(Mixed), masks={"mask": "ignore"}))
    assert [one.code for one in found] == codes


def test_a_causal_mask_upside_down_is_no_wrong_join() -> None:
    class Window(Parts):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.heads(x)
            distance = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
            hidden = (distance < 0) | (distance >= 3)
            return self.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=hidden))

    report = attn_guard.check(seeded(Window), features(3, 7), causal=True)
    assert "ATN221" not in report.codes
    assert not report.ok


class OfTransformers(Parts):
    """Encoder and decoder in one; ``attention_mask`` speaks of the encoder's input."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(31, D)
        self.cross = nn.MultiheadAttention(D, H, batch_first=True)

    def forward(
        self,
        input_ids: Tensor,
        decoder_input_ids: Tensor,
        attention_mask: Any = None,
        decoder_attention_mask: Any = None,
    ) -> Tensor:
        q, k, v = self.heads(self.words(input_ids))
        memory = self.merge(self.scores(q, k).softmax(-1) @ v)
        target: Tensor = self.words(decoder_input_ids)
        return self.cross(target, memory, memory, need_weights=False)[0]


class Captioner(Parts):
    """As `OfTransformers`, with features of another kind in place of ids."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(24, D, 3, padding=1)
        self.words = nn.Embedding(31, D)
        self.cross = nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, input_features: Tensor, decoder_input_ids: Tensor, attention_mask: Any = None) -> Tensor:
        memory = self.stem(input_features).transpose(1, 2)
        target: Tensor = self.words(decoder_input_ids)
        return self.cross(target, memory, memory, need_weights=False)[0]


def spoken_of(module: nn.Module, inputs: dict[str, Tensor], mask: str) -> list[str]:
    call = given(None, inputs, Contract(), module)
    return [stream.name for stream in masked_by(look(module, call, Contract(), 0), mask)]


def test_which_input_a_mask_of_an_encoder_decoder_speaks_of() -> None:
    ids = torch.arange(14).view(2, 7)
    inputs = {"input_ids": ids, "decoder_input_ids": ids[:, :5]}
    assert spoken_of(seeded(OfTransformers), inputs, "attention_mask") == ["input_ids"]
    assert spoken_of(seeded(OfTransformers), inputs, "decoder_attention_mask") == ["decoder_input_ids"]


def test_a_mask_of_features_says_nothing_of_the_ids_of_a_decoder() -> None:
    inputs = {"input_features": torch.randn(2, 24, 9), "decoder_input_ids": torch.arange(10).view(2, 5)}
    assert spoken_of(seeded(Captioner), inputs, "attention_mask") == []


class Passed(Parts):
    """``other_mask`` is a parameter that nothing looks at."""

    def forward(self, x: Tensor, mask: Any = None, other_mask: Any = None) -> Tensor:
        q, k, v = self.heads(x)
        scores = self.scores(q, k)
        scores = scores if mask is None else scores.masked_fill(~mask[:, None, None], LOW)
        return self.merge(scores.softmax(-1) @ v)


def test_masks_that_a_call_does_not_look_at_are_not_handed_over() -> None:
    xray = seen(seeded(Passed))
    assert list(xray.handed.arguments) == ["mask"]
    assert [delivery.name for delivery in xray.handed.over] == ["mask"]


class Merged(Parts):
    """One softmax over the decoder's own earlier keys and those of the memory, each with a mask of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(31, D)

    def forward(self, input_ids: Tensor, decoder_input_ids: Tensor, attention_mask: Any = None) -> Tensor:
        memory, target = self.words(input_ids), self.words(decoder_input_ids)
        q, k, v = self.heads(target)
        _, memory_k, memory_v = self.heads(memory)
        hidden = later(target.shape[1]).expand(len(q), 1, -1, -1)
        keep = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden = torch.cat((hidden, (keep == 0)[:, None, None].expand(-1, -1, target.shape[1], -1)), dim=-1)
        scores = self.scores(q, torch.cat((k, memory_k), dim=2)).masked_fill(hidden, LOW)
        return self.merge(scores.softmax(-1) @ torch.cat((v, memory_v), dim=2))


def test_keys_of_a_memory_beside_the_own_ones_are_not_later() -> None:
    ids = torch.arange(14).view(2, 7)
    inputs = {"input_ids": ids, "decoder_input_ids": ids[:, :5] + 2}
    assert failing(attn_guard.check(seeded(Merged), None, inputs, masks={"attention_mask": "attend"})) == []


def test_a_mask_of_another_input_is_not_judged_by_the_words() -> None:
    class Heard(nn.Module):
        """Words without a mask, and frames of four numbers of a sound, of which the mask has one for each number."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.sounds, self.frame = Core(), Core(), nn.Conv1d(1, D, 4, 4)

        def forward(self, x: Tensor, sound: Tensor, padding_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
            q, k, v = self.sounds.heads(self.frame(sound).mT)
            scores = self.sounds.scores(q, k)
            if padding_mask is not None:
                scores = scores.masked_fill(~padding_mask[:, ::4].bool()[:, None, None], -torch.inf)
            return self.words(x), self.sounds.merge(scores.softmax(-1) @ v)

    module, sound = seeded(Heard), torch.randn(3, 1, 8, generator=torch.Generator().manual_seed(0))
    assert list(attn_guard.xray(module, (features(batch=3), sound), {}).handed.over) == []


@pytest.mark.parametrize("kept", [lambda m: m, lambda m: m[:, None, None]])
def test_as_many_samples_as_positions_make_no_form_fit_by_chance(kept: Callable[[Tensor], Tensor]) -> None:
    module = masked(lambda scores, mask: scores.masked_fill(~kept(mask), LOW))
    report = attn_guard.check(module, features(batch=5))
    assert "ATN207" not in report.codes
