"""What a check does, counted: calls of the module, and replays of parts of its tape. Seconds are printed by the
bench."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor, nn

import attn_guard
from attn_guard.probe.replay import Replay
from tests.probe.modules import D, H, seeded


class LikeBert(nn.Module):
    """An encoder layer with the arguments of BERT's: an additive mask, and an answer with the weights on request."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(D, D) for _ in range(4))
        self.norm = nn.LayerNorm(D)

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, output_attentions: bool = False
    ) -> tuple[Tensor, ...]:
        parts = (part(hidden_states) for part in (self.query, self.key, self.value))
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in parts)
        scores = q @ k.mT / (D // H) ** 0.5
        if attention_mask is not None:
            scores = scores + attention_mask
        weights = scores.softmax(-1)
        output = self.norm(hidden_states + self.dense((weights @ v).transpose(1, 2).flatten(2)))
        return (output, weights) if output_attentions else (output,)


# Name → layer, calls of it and replays in one check, at most.
LAYERS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "self-attention": (lambda: nn.MultiheadAttention(D, H, batch_first=True), 3, 22),
    "encoder": (lambda: nn.TransformerEncoderLayer(D, H, 2 * D, batch_first=True), 3, 22),
    "decoder": (lambda: nn.TransformerDecoderLayer(D, H, 2 * D, batch_first=True), 5, 40),
    "like BERT": (LikeBert, 11, 20),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_check_of_a_right_layer_takes_few_calls_and_replays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, calls, replays = LAYERS[name]
    module, called, replayed = seeded(build), [], []  # type: ignore[var-annotated]
    module.register_forward_pre_hook(lambda *_: called.append(None))
    run = Replay.__call__

    def counted(self: Replay, changed: Any) -> dict[int, Tensor]:
        replayed.append(None)
        return run(self, changed)

    monkeypatch.setattr(Replay, "__call__", counted)
    report = attn_guard.check(module)
    assert report.ok, str(report)
    assert len(called) <= calls
    assert len(replayed) <= replays
