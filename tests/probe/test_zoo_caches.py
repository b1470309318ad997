"""Caches and positions of `transformers` models as their authors wrote them: all are decoded, and nothing is said."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import attn_guard
from attn_guard.contract import Contract
from attn_guard.probe.decoder import Decoder, Run
from attn_guard.probe.xray import find_call
from tests.probe.zoo import MODELS

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.zoo

SMALL: dict[str, Any] = {
    "hidden_size": 40,
    "intermediate_size": 23,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "vocab_size": 67,
}
BART: dict[str, Any] = {
    "d_model": 22,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 23,
    "decoder_ffn_dim": 23,
    "vocab_size": 67,
    "max_position_embeddings": 64,
}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen2": ("ForCausalLM", SMALL),
    "Mistral": ("ForCausalLM", {**SMALL, "sliding_window": 4}),
    "Gemma2": ("ForCausalLM", {**SMALL, "head_dim": 10, "sliding_window": 4}),
    "Bloom": ("ForCausalLM", {"hidden_size": 22, "n_layer": 2, "n_head": 2, "vocab_size": 67}),
    "GPTJ": ("ForCausalLM", {"n_embd": 40, "n_layer": 2, "n_head": 2, "rotary_dim": 8, "vocab_size": 67}),
    "Bart": ("ForConditionalGeneration", BART),
}


def built(family: str) -> nn.Module:
    if family in MODELS:
        return MODELS[family]("eager")
    head, sizes = OTHERS[family]
    config = getattr(transformers, f"{family}Config")(**sizes)
    config._attn_implementation = "eager"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: nn.Module = getattr(transformers, f"{family}{head}")(config).eval()
    return model


@pytest.mark.parametrize("family", [*MODELS, *OTHERS])
def test_nothing_is_said(family: str) -> None:
    report = attn_guard.check(built(family), positions=True, select=["ATN7"], preview=True)
    assert list(report) == [], str(report)


@pytest.mark.parametrize("family", [name for name in (*MODELS, *OTHERS) if name != "bert"])
def test_every_decoder_is_decoded(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    run = Decoder.run

    def counted(decoder: Decoder, module: nn.Module, arguments: dict[str, Any]) -> Run:
        taken.append(arguments[decoder.main].shape[1])
        return run(decoder, module, arguments)

    monkeypatch.setattr(Decoder, "run", counted)
    seen, _ = find_call(built(family), Contract())
    assert seen is not None
    assert seen.decoded is None
    assert taken.count(1) >= 5
    assert max(taken) >= (7 if family in ("Mistral", "Gemma2") else 5)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_positions_that_start_again(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = built(family)
    kind: Any = type(model.get_submodule("transformer" if family == "gpt2" else "model"))
    forward = kind.forward

    def from_zero(self: nn.Module, input_ids: torch.Tensor, **kwargs: Any) -> Any:
        kwargs["position_ids"] = torch.arange(input_ids.shape[1])[None]
        return forward(self, input_ids, **kwargs)

    monkeypatch.setattr(kind, "forward", from_zero)
    report = attn_guard.check(model, select=["ATN701", "ATN702"])
    assert set(report.codes) == ({"ATN701"} if family == "gpt2" else {"ATN702"}), str(report)
