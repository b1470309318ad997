"""Models of `transformers` as their authors wrote them: every attention is seen, and nothing is said against them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import attn_guard
from attn_guard.anatomy import Site
from attn_guard.findings import Severity
from tests.probe.zoo import MODELS

pytest.importorskip("transformers")

SITES: dict[str, list[tuple[str, bool | None, bool]]] = {
    "gpt2": [("transformer.h.0.attn", True, False), ("transformer.h.1.attn", True, False)],
    "llama": [("model.layers.0.self_attn", True, False), ("model.layers.1.self_attn", True, False)],
    "bert": [("encoder.layer.0.attention.self", False, False), ("encoder.layer.1.attention.self", False, False)],
    "t5": [
        ("encoder.block.0.layer.0.SelfAttention", False, False),
        ("decoder.block.0.layer.0.SelfAttention", True, False),
        ("decoder.block.0.layer.1.EncDecAttention", None, True),
    ],
}


def is_scaled_right(family: str, site: Site) -> bool:
    if site.scale is None:
        return False
    return site.scale.is_one and site.normalised if family == "t5" else site.scale.is_right


def assert_understood(family: str, attention: str) -> None:
    report = attn_guard.check(MODELS[family](attention))
    assert list(report) == [], str(report)
    assert [(site.name, site.causal, site.cross) for site in report.sites] == SITES[family]
    assert all(is_scaled_right(family, site) for site in report.sites)
    assert "attention_mask: 1 means attend, as in transformers" in report.assumptions
    assert any(note.startswith("causal: ") for note in report.assumptions) is (family in ("gpt2", "llama", "t5"))


@pytest.mark.parametrize("family", MODELS)
def test_fused(family: str) -> None:
    assert_understood(family, "sdpa")


@pytest.mark.zoo
@pytest.mark.parametrize("family", MODELS)
def test_step_by_step(family: str) -> None:
    assert_understood(family, "eager")


@pytest.mark.zoo
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", MODELS)
def test_a_padded_call_of_the_users(family: str, attention: str) -> None:
    ids = torch.randint(3, 67, (2, 7), generator=torch.Generator().manual_seed(0))
    kwargs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.tensor([[1] * 7, [1] * 4 + [0] * 3])}
    if family == "t5":
        kwargs["decoder_input_ids"] = ids[:, :5]
    report = attn_guard.check(MODELS[family](attention), None, kwargs)
    assert list(report) == [], str(report)
    assert len(report.sites) == len(SITES[family])


@pytest.mark.zoo
@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_decoder_without_its_mask_looks_ahead_and_at_padding(
    family: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS[family](attention)
    home: Any = __import__(type(model).__module__, fromlist=["create_causal_mask"])
    open_mask = torch.zeros(1, 1, 1, 1)
    monkeypatch.setattr(home, "create_causal_mask", lambda *_, **__: open_mask)
    report = attn_guard.check(model)
    assert {finding.code for finding in report if finding.fails} == {"ATN212", "ATN214"}
    assert all(finding.severity is Severity.WARNING for finding in report)
    assert attn_guard.check(model, causal=True).codes["ATN214"] == 1


@pytest.mark.zoo
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_scale_of_another_size(attention: str) -> None:
    model = MODELS["llama"](attention)
    model.get_submodule("model.layers.1.self_attn").scaling = 40**-0.5
    (found,) = attn_guard.check(model)
    assert (found.code, found.location.module) == ("ATN102", "model.layers.1.self_attn")


@pytest.mark.zoo
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_an_encoder_that_drops_its_padding_mask(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["bert"](attention)
    home: Any = __import__(type(model).__module__, fromlist=["create_bidirectional_mask"])
    monkeypatch.setattr(home, "create_bidirectional_mask", lambda *_, **__: None)
    report = attn_guard.check(model, masks={"attention_mask": "attend"})
    assert {finding.code for finding in report if finding.fails} == {"ATN212"}
    assert all(finding.severity is Severity.ERROR for finding in report)
