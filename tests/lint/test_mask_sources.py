"""Masks that are built from another input than the one whose keys they hide."""

from __future__ import annotations

import pytest

from attn_guard.findings import Severity
from attn_guard.lint.run import lint_source


def decoder(call: str, before: str = "") -> str:
    return f"""
import torch
import torch.nn as nn
class Reader(nn.Module):
    def __init__(self, d, h, src_pad_idx, trg_pad_idx):
        super().__init__()
        self.embed = nn.Embedding(99, d)
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, h), 2)
        self.transformer = nn.Transformer(d, h)
        self.src_pad_idx, self.trg_pad_idx = src_pad_idx, trg_pad_idx
    def forward(self, src, tgt, src_lengths=None, tgt_key_padding_mask=None, flag=False):
        memory, x = self.embed(src), self.embed(tgt)
        src_pad, tgt_pad = src == 0, tgt == 0
        {before or "pass"}
        return {call}
"""


def codes(source: str) -> list[str]:
    return [finding.code for finding in lint_source(source, "reader.py")]


@pytest.mark.parametrize(
    "call",
    [
        "self.attn(x, memory, memory, key_padding_mask=tgt_pad)[0]",
        "self.attn(query=x, key=memory, value=memory, key_padding_mask=tgt_key_padding_mask)[0]",
        "self.attn(x, memory, memory, tgt_pad)[0]",
        "self.decoder(x, memory, memory_key_padding_mask=tgt == 0)",
        "self.decoder(x, memory, tgt_key_padding_mask=src_pad)",
        "self.decoder(x, memory, None, None, None, tgt_pad)",
        "self.transformer(memory, x, memory_key_padding_mask=tgt_pad)",
    ],
)
def test_mask_of_the_other_input_is_found(call: str) -> None:
    (finding,) = lint_source(decoder(call), "reader.py")
    assert (finding.code, finding.severity) == ("ATN222", Severity.WARNING)


@pytest.mark.parametrize(
    ("call", "before"),
    [
        ("self.attn(x, memory, memory, key_padding_mask=src_pad)[0]", ""),
        ("self.attn(x, x, x, key_padding_mask=tgt_pad)[0]", ""),
        ("self.attn(x, memory, memory)[0]", ""),
        ("self.attn(x, memory, memory, key_padding_mask=self.pads(src, tgt))[0]", ""),
        ("self.attn(x, memory, memory, key_padding_mask=tgt_pad)[0]", "x = x + memory.mean(1, keepdim=True)"),
        ("self.attn(x, memory, memory, key_padding_mask=tgt_pad)[0]", "tgt_pad = src_pad"),
        ("self.attn(x, memory, memory, key_padding_mask=tgt_pad)[0]", "if flag: tgt_pad = src_pad"),
        ("self.attn(x, memory, memory, key_padding_mask=self.pad)[0]", ""),
        ("self.attn(self.latents, memory, memory, key_padding_mask=src_pad)[0]", ""),
        ("self.decoder(x, memory, tgt_key_padding_mask=tgt_pad, memory_key_padding_mask=src_pad)", ""),
        ("self.transformer(memory, x, None, None, None, src_pad, tgt_pad, src_pad)", ""),
    ],
)
def test_mask_of_the_keys_or_of_unknown_origin_is_fine(call: str, before: str) -> None:
    assert codes(decoder(call, before)) == []


@pytest.mark.parametrize(
    ("compared", "expected"),
    [
        ("tgt != self.src_pad_idx", ["ATN222"]),
        ("src.eq(self.trg_pad_idx)", ["ATN222"]),
        ("tgt != self.trg_pad_idx", []),
        ("tgt == self.pad_idx", []),
        ("labels == self.src_pad_idx", []),
    ],
)
def test_ids_compared_with_the_padding_id_of_the_other_input_are_found(compared: str, expected: list[str]) -> None:
    assert codes(decoder("self.attn(x, x, x)[0]", f"keep = {compared}")) == expected
