"""Promises that nobody declared, and the evidence for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.probe.evidence import is_triangle
from attn_guard.probe.xray import XRay
from tests.probe.modules import CAUSAL_STYLES, STYLES, Block, BuiltIn, Decoder, Sdpa, features, later, seeded
from tests.probe.silent_modules import Core, Encoder, SlidingWindow


def seen(module: nn.Module) -> XRay:
    return attn_guard.xray(module, features())


class TestCausal:
    @pytest.mark.parametrize("style", CAUSAL_STYLES)
    def test_a_triangular_mask_is_evidence(self, style: str) -> None:
        if style == "multi-query":
            pytest.skip("heads laid out as rows: the mask is no square")
        found = seen(seeded(CAUSAL_STYLES[style]))
        assert found.contract.causal is True
        assert not found.promised("causal")
        assert any(note.startswith("causal: ") for note in found.assumptions)

    @pytest.mark.parametrize("style", STYLES)
    def test_no_mask_no_promise(self, style: str) -> None:
        found = seen(seeded(STYLES[style]))
        assert found.contract.causal is None
        assert found.assumptions == ()

    @pytest.mark.parametrize("name", ["is_causal", "causal"])
    def test_an_attribute_that_is_true(self, name: str) -> None:
        module = seeded(Encoder)
        setattr(module, name, True)
        found = seen(module)
        assert found.contract.causal is True
        assert f"{name} is True" in found.assumptions[0]

    @pytest.mark.parametrize("value", [False, 1, "yes", None])
    def test_an_attribute_that_is_not_exactly_true(self, value: object) -> None:
        module = seeded(Encoder)
        module.is_causal = value  # type: ignore[assignment]
        assert seen(module).contract.causal is None

    @pytest.mark.parametrize(
        "buffer",
        [
            torch.ones(9, 9).tril(),
            later(9),
            torch.ones(1, 1, 9, 9).tril(),
            torch.zeros(9, 9).masked_fill(later(9), -torch.inf),
        ],
    )
    def test_a_buffer_that_is_a_triangle(self, buffer: Tensor) -> None:
        class Buffered(Encoder):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("mask", buffer)

            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x) + 0 * self.get_buffer("mask")[..., :1, :1].nan_to_num().float().sum()

        found = seen(seeded(Buffered))
        assert found.contract.causal is True
        assert found.assumptions == ("causal: buffer mask is a triangle",)

    def test_every_self_attention_must_say_so(self) -> None:
        model = nn.Sequential(Block(seeded(Core)), Block(seeded(Encoder)))
        assert seen(model).contract.causal is None

    def test_a_window_that_looks_back_is_no_triangle_and_still_causal_by_measurement(self) -> None:
        found = seen(seeded(SlidingWindow))
        assert found.sites[0].site.causal is True

    def test_a_dropped_triangle_is_evidence_too(self) -> None:
        class Dropping(Encoder):
            def hide(self, scores: Tensor) -> Tensor:
                scores.masked_fill(later(scores.shape[-1]), -torch.inf)
                return scores

        assert seen(seeded(Dropping)).contract.causal is True

    @pytest.mark.parametrize(("steps", "causal"), [(features().shape[1], True), (3, None)])
    def test_a_triangle_that_is_made_and_forgotten(self, steps: int, causal: bool | None) -> None:
        class Forgetful(Core):
            def forward(self, x: Tensor) -> Tensor:
                torch.ones(1, steps, steps, dtype=torch.bool).tril()
                result: Tensor = super().forward(x)
                return result

            def hide(self, scores: Tensor) -> Tensor:
                return scores

        found = seen(seeded(Forgetful))
        assert found.contract.causal is causal
        assert (found.assumptions == ()) is (causal is None)

    def test_a_declared_promise_needs_no_evidence(self) -> None:
        @attn_guard.contract(causal=False)
        class Declared(Core):
            pass

        found = seen(seeded(Declared))
        assert found.contract.causal is False
        assert found.promised("causal")
        assert not any(note.startswith("causal") for note in found.assumptions)


class TestMasks:
    def test_names_of_torch(self) -> None:
        layer = seeded(lambda: nn.TransformerEncoderLayer(21, 3, 11, batch_first=True))
        found = seen(layer)
        assert dict(found.contract.masks or {}) == {"src_mask": "ignore", "src_key_padding_mask": "ignore"}
        for name in ("src_mask", "src_key_padding_mask"):
            assert any(note.startswith(f"{name}: True means ignore") for note in found.assumptions)

    @pytest.mark.parametrize("name", ["mask", "attention_mask"])
    def test_other_names_mean_nothing_by_themselves(self, name: str) -> None:
        class Masked(Encoder):
            pass

        forward = f"def forward(self, x, {name}=None):\n    return Encoder.forward(self, x)"
        namespace: dict[str, Callable[..., Tensor]] = {"Encoder": Encoder}  # type: ignore[dict-item]
        exec(forward, namespace)
        Masked.forward = namespace["forward"]  # type: ignore[method-assign]
        assert not seen(seeded(Masked)).contract.masks

    def test_a_declared_meaning_wins(self) -> None:
        @attn_guard.contract(masks={"key_padding_mask": "attend"})
        class Masked(Encoder):
            def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
                return super().forward(x)

        found = seen(seeded(Masked))
        assert dict(found.contract.masks or {}) == {"key_padding_mask": "attend"}
        assert found.promised("key_padding_mask")
        assert found.assumptions == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.ones(4, 4).tril(), True),
        (torch.ones(4, 4).triu(1), True),
        (torch.ones(4, 4).triu().bool(), True),
        (torch.zeros(1, 1, 4, 4).masked_fill(later(4), -1e9), True),
        (torch.ones(4, 4), False),
        (torch.zeros(4, 4), False),
        (torch.eye(4), False),
        (torch.ones(4, 5).tril(), False),
        (torch.ones(4), False),
        (torch.ones(1, 1), False),
        (torch.ones(4, 4).triu(2), False),
        (torch.randn(4, 4, generator=torch.Generator().manual_seed(0)), False),
        (torch.ones(4, 4, dtype=torch.complex64).tril(), False),
    ],
)
def test_triangles(value: Tensor, expected: bool) -> None:
    assert is_triangle(value) is expected


def test_models_are_causal_by_their_layers() -> None:
    found = attn_guard.xray(seeded(Decoder), torch.ones(2, 5, dtype=torch.long))
    assert found.contract.causal is True


@pytest.mark.parametrize("build", [lambda: Sdpa("is_causal"), lambda: BuiltIn(causal=True)])
def test_what_was_assumed_is_in_the_report(build: Callable[[], nn.Module]) -> None:
    report = attn_guard.check(seeded(build))
    assert any(note.startswith("causal: a triangular mask is applied at ") for note in report.assumptions)
