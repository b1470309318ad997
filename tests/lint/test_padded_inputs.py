"""Ids with padding among them, looked up and handed to built-in layers without any mask."""

from __future__ import annotations

import textwrap

import pytest

from attn_guard.findings import Severity
from attn_guard.lint.run import lint_source

MODEL = """\
import math
import torch
import torch.nn as nn


class Positions(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.drop = nn.Dropout(0.1)
        self.register_buffer("table", torch.zeros(1, 512, d_model))

    def forward(self, x):
        return self.drop(x + self.table[:, : x.size(1)])


class Model(nn.Module):
    def __init__(self, words, d_model, heads, pad_idx{default}):
        super().__init__()
        self.pad_idx = pad_idx
        self.embedding = nn.Embedding({embedding})
        self.positions = Positions(d_model)
        self.norm = nn.LayerNorm(d_model)
        layer = nn.TransformerEncoderLayer(d_model, heads, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(d_model, heads, batch_first=True), 2)
        self.attention = nn.MultiheadAttention(d_model, heads, batch_first=True)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(d_model, heads, batch_first=True) for _ in range(2)])

    def forward(self, ids, memory, pad_mask=None):
        x = self.embedding(ids)
"""


def found(body: str, embedding: str = "words, d_model, padding_idx=pad_idx", default: str = "") -> list[str]:
    source = MODEL.format(embedding=embedding, default=default)
    source += textwrap.indent(textwrap.dedent(body).strip("\n") + "\n", " " * 8)
    report = lint_source(source, "model.py")
    assert {finding.severity for finding in report if finding.code == "ATN212"} <= {Severity.WARNING}
    return [finding.code for finding in report]


@pytest.mark.parametrize(
    "body",
    [
        "return self.encoder(x)",
        "x = self.positions(x * math.sqrt(self.d_model))\nreturn self.encoder(self.norm(x))",
        "return self.encoder(x, mask=None)",
        "return self.attention(x, x, x)[0]",
        "return self.attention(memory, x, x, need_weights=False)[0]",
        "return self.decoder(memory, x)",
        "return self.decoder(tgt=x, memory=memory)",
        "for layer in self.layers:\n    x = layer(x)\nreturn x",
    ],
)
def test_padding_that_no_mask_hides_is_found(body: str) -> None:
    assert found(body) == ["ATN212"]


@pytest.mark.parametrize("embedding", ["words, d_model, 0", "words, d_model, padding_idx=0", "words, d_model, pad_idx"])
def test_padding_id_may_be_written_in_any_way(embedding: str) -> None:
    assert found("return self.encoder(x)", embedding) == ["ATN212"]


@pytest.mark.parametrize(
    "body",
    [
        "return self.encoder(x, src_key_padding_mask=ids == self.pad_idx)",
        "return self.encoder(x, None, ids == self.pad_idx)",
        "return self.encoder(x, src_key_padding_mask=pad_mask)",
        "t = ids.size(1)\nreturn self.encoder(x, nn.Transformer.generate_square_subsequent_mask(t))",
        "return self.encoder(x, mask=self.mask, is_causal=True)",
        "return self.attention(x, x, x, key_padding_mask=pad_mask)[0]",
        "print(pad_mask)\nreturn self.attention(x, memory, memory)[0]",  # padding among the queries hurts nobody else
        "return self.decoder(x, memory, tgt_mask=self.mask)",
        "return self.encoder(x.mean(1, keepdim=True))",
        "return self.encoder(x, **self.masks(ids))",
        "return self.encoder(memory)",
    ],
)
def test_masks_of_any_kind_and_other_inputs_are_fine(body: str) -> None:
    assert found(body) == []


@pytest.mark.parametrize(
    ("embedding", "default"),
    [
        ("words, d_model", ""),
        ("words, d_model, padding_idx=None", ""),
        ("words, d_model, padding_idx=pad_idx", "=None"),
    ],
)
def test_embedding_that_may_know_of_no_padding_says_nothing(embedding: str, default: str) -> None:
    assert found("return self.encoder(x)", embedding, default) == []


@pytest.mark.parametrize("one", ["x.unsqueeze(1)", "x[:, None]", "x[:, None, :]", "torch.unsqueeze(x, dim=1)"])
@pytest.mark.parametrize("body", ["return self.decoder(memory, {one})", "return self.encoder(memory + {one})"])
def test_one_embedding_of_each_sample_is_no_sequence(one: str, body: str) -> None:
    assert found(body.format(one=one)) == []
