from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from tests.bench.replays.kit import WIDTH, B, Call, D, Files, H, T, randn, seeded

PROMISES: dict[str, Any] = {"causal": True}


class Packed(nn.Module):
    """One packed row of documents, attended with a mask that has been moved to the device of the input."""

    def __init__(self, masks: Any) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mask = masks.BlockDiagonalCausalMask.from_seqlens([T])

    def forward(self, x: Tensor) -> Tensor:
        batch, time, _ = x.shape
        query, key, value = self.qkv(x).view(batch, time, 3, H, D).permute(2, 0, 3, 1, 4)
        bias = self.mask.to(x.device).materialize((time, time))
        out = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.out(out.transpose(1, 2).flatten(2))


def build(files: Files) -> nn.Module:
    module = files.load("xformers/ops/fmha/attn_bias.py")
    return seeded(lambda: Packed(module))


def inputs() -> Call:
    return (randn(B, T, WIDTH),), {}
