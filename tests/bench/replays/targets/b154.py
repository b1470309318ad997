from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tests.bench.replays.kit import WIDTH, B, Call, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {}


class Channels(nn.Module):
    """Attention between the channels of a series under the learned mask, as its model joins the two."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.mask = module.Mahalanobis_mask(WIDTH)
        self.attention = module.AttentionLayer(module.FullAttention(attention_dropout=0.0), WIDTH, H)

    def forward(self, x: Tensor) -> Any:
        return self.attention(x, x, x, attn_mask=self.mask(x))[0]


def build(files: Files) -> nn.Module:
    module = files.load("ts_benchmark/baselines/duet/utils/masked_attention.py")
    return seeded(lambda: Channels(module))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
