"""Which axis attention runs along: batch (ATN305), heads (ATN306), and what positions say of time (ATN707)."""

from __future__ import annotations

import textwrap

import pytest

from attn_guard.findings import Severity
from attn_guard.lint.run import lint_source

HEAD = """\
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocabulary, d_model, nhead):
        super().__init__()
        assert d_model % nhead == 0
        self.nhead = nhead
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.pe = nn.Parameter(torch.zeros(1, 512, d_model))
        self.conv = nn.Conv2d(3, d_model, 16, 16)
        self.cls = nn.Parameter(torch.zeros(1, 1, d_model))
        self.recurrent = nn.LSTM(d_model, d_model, batch_first=True)
        self.norm = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))
        self.layer = LAYER

    def forward(self, x, mask=None):
"""

TIME_FIRST = [
    "nn.MultiheadAttention(d_model, nhead)",
    "nn.MultiheadAttention(d_model, nhead, 0.1, batch_first=False)",
    "nn.TransformerEncoderLayer(d_model, nhead)",
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(d_model, nhead), 6)",
]
BATCH_FIRST = [
    "nn.MultiheadAttention(d_model, nhead, batch_first=True)",
    "nn.MultiheadAttention(d_model, nhead, 0.0, True, False, False, None, None, True)",
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(d_model, nhead, batch_first=True), 6)",
    "nn.TransformerEncoderLayer(d_model, nhead, 2048, 0.1, 'relu', 1e-5, True)",
]
UNKNOWN = [
    "nn.MultiheadAttention(d_model, nhead, **options)",
    "nn.MultiheadAttention(d_model, nhead, batch_first=options)",
    "MultiheadAttention(d_model, nhead)",
    "nn.TransformerEncoder(make_layer(), 6)",
]


def module(body: str, layer: str = TIME_FIRST[0]) -> str:
    if "Transformer" in layer or "make_layer" in layer:
        body = body.replace("self.layer(x, x, x)[0]", "self.layer(x)")
    return HEAD.replace("LAYER", layer) + textwrap.indent(textwrap.dedent(body).strip() + "\n", " " * 8)


def codes(source: str) -> list[str]:
    return [finding.code for finding in lint_source(source, "encoder.py")]


BATCH_LEADS = [
    """
    b, t, d = x.shape
    x = self.norm(x)
    return self.layer(x, x, x)[0]
    """,
    """
    batch_size, frames, pixels, d = x.shape
    x = x.reshape(batch_size * frames, pixels, d)
    return self.layer(x, x, x)[0]
    """,
    """
    x = self.embedding(x) + self.pe[:, : x.size(1)]
    return self.layer(x, x, x)[0]
    """,
    """
    x = self.embedding(x)
    x += self.pe[:, : x.shape[1]].to(x.device)
    return self.layer(x, x, x)[0]
    """,
    """
    x = self.conv(x).flatten(2).transpose(1, 2)
    return self.layer(x, x, x)[0]
    """,
    """
    x = rearrange(x, "b c h w -> b (h w) c")
    return self.layer(x, x, x)[0]
    """,
    """
    x = self.recurrent(x)[0]
    return self.layer(x, x, x)[0]
    """,
    """
    b, t = x.shape
    x = self.embedding(x)
    return self.layer(x, x, x)[0]
    """,
    """
    x = self.embedding(x)
    x = self.norm(x + self.layer(x, x, x)[0])
    return x.mean(dim=1)
    """,
    """
    x = self.layer(x, x, x)[0]
    return self.q(x[:, 0])
    """,
    """
    x = self.layer(x, x, x)[0]
    return x[:, -1, :]
    """,
]


@pytest.mark.parametrize("body", BATCH_LEADS)
@pytest.mark.parametrize("layer", [TIME_FIRST[0], TIME_FIRST[3]])
def test_time_first_layer_in_a_flow_that_shows_batch_first_is_found(body: str, layer: str) -> None:
    (finding,) = lint_source(module(body, layer), "encoder.py")
    assert (finding.code, finding.severity) == ("ATN305", Severity.WARNING)
    assert "self.layer(" in module(body, layer).splitlines()[finding.location.line - 1]


@pytest.mark.parametrize("layer", [*BATCH_FIRST, *UNKNOWN])
def test_batch_first_and_unknown_layers_are_fine(layer: str) -> None:
    for body in BATCH_LEADS:
        assert codes(module(body, layer)) == []


@pytest.mark.parametrize("layer", TIME_FIRST)
@pytest.mark.parametrize(
    "body",
    [
        "return self.layer(x, x, x)[0]",
        "t, b, d = x.shape\nx = self.norm(x)\nreturn self.layer(x, x, x)[0]",
        "b, t, d = x.shape\nx = x.transpose(0, 1)\nreturn self.layer(x, x, x)[0].transpose(0, 1)",
        "b, t, d = x.shape\nx = x.permute(1, 0, 2)\nx = self.layer(x, x, x)[0]\nreturn x.permute(1, 0, 2)[:, 0]",
        "x = self.layer(x, x, x)[0]\nreturn x.mean(dim=0)",
        "x = self.layer(x, x, x)[0]\nreturn x[0]",
        "x = self.layer(x, x, x)[0]\nreturn x.mean(dim=-1)",
        "x = x + self.pe[: x.size(0)]\nreturn self.layer(x, x, x)[0]",
        "x = self.conv(x).flatten(2).permute(2, 0, 1)\nreturn self.layer(x, x, x)[0]",
        "b, d = x.shape\nx = x.view(b, 1, d)\nreturn self.layer(x, x, x)[0]",
        "b, t, d = x.shape\nx = x.view(1, b, t * d)\nreturn self.layer(x, x, x)[0]",
        'x = rearrange(x, "b n d -> n b d")\nreturn self.layer(x, x, x)[0]',
        "n, l, e = x.shape\nx = self.norm(x)\nreturn self.layer(x, x, x)[0]",
    ],
)
def test_time_first_and_unknown_flows_are_fine(body: str, layer: str) -> None:
    assert codes(module(body, layer)) == []


def test_a_padding_mask_fits_only_what_is_time_first() -> None:
    body = "b, t, d = x.shape\nx = self.norm(x)\nreturn self.layer(x, x, x, key_padding_mask=mask)[0]"
    assert "ATN305" not in codes(module(body))


def test_contract_that_says_time_first_is_believed_and_one_that_says_batch_first_is_an_error() -> None:
    source = module(BATCH_LEADS[0])
    assert codes(source.replace("class Encoder", "@contract(batch_first=False)\nclass Encoder")) == []
    (finding,) = lint_source(source.replace("class Encoder", "@contract(batch_first=True)\nclass Encoder"), "x.py")
    assert finding.severity is Severity.ERROR


@pytest.mark.parametrize("layer", BATCH_FIRST)
def test_positions_along_the_first_axis_of_a_batch_first_layer_are_found(layer: str) -> None:
    body = "x = x + self.pe[: x.size(0)]\nreturn self.layer(x, x, x)[0]"
    (finding,) = lint_source(module(body, layer), "encoder.py")
    assert finding.code == "ATN707"
    assert finding.related[0][1] == "this layer takes (batch, time, features)"


@pytest.mark.parametrize("layer", BATCH_FIRST)
@pytest.mark.parametrize(
    "body",
    [
        "x = x + self.pe[:, : x.size(1)]\nreturn self.layer(x, x, x)[0]",
        "n = x.size(1)\nx = x + self.pe[:, :n]\nreturn self.layer(x, x, x)[0]",
        "x = x + self.pe[: x.size(0)]\nx = x.transpose(0, 1)\nreturn self.layer(x, x, x)[0]",
        "x = x + self.pe[: x.size(0)]\nreturn x",
        "x = x + self.pe[: self.length]\nreturn self.layer(x, x, x)[0]",
    ],
)
def test_positions_along_time_and_of_unknown_axes_are_fine(body: str, layer: str) -> None:
    assert codes(module(body, layer)) == []


SPLIT = (
    "b, t, d = x.shape\n"
    "q, k, v = self.q(x), self.k(x), self.v(x)\n"
    "q, k, v = (p.view(b, t, self.nhead, d // self.nhead) for p in (q, k, v))\n"
)


@pytest.mark.parametrize(
    "core",
    [
        "return F.scaled_dot_product_attention(q, k, v).reshape(b, t, d)",
        "return ((q @ k.transpose(-2, -1) * (d // self.nhead) ** -0.5).softmax(-1) @ v).reshape(b, t, d)",
        "w = torch.einsum('bthd,btgd->bthg', q, k) * (d // self.nhead) ** -0.5\n"
        "return torch.einsum('bthg,btgd->bthd', w.softmax(-1), v).reshape(b, t, d)",
    ],
)
def test_attention_of_heads_to_heads_is_found(core: str) -> None:
    assert codes(module(SPLIT + core)) == ["ATN306"]


@pytest.mark.parametrize(
    "core",
    [
        "q, k, v = (p.transpose(1, 2) for p in (q, k, v))\n"
        "return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)",
        "w = torch.einsum('bihd,bjhd->bhij', q, k) * (d // self.nhead) ** -0.5\n"
        "return torch.einsum('bhij,bjhd->bihd', w.softmax(-1), v).reshape(b, t, d)",
        "q, k, v = (p.reshape(b * t, self.nhead, d // self.nhead) for p in (q, k, v))\n"  # on purpose: three axes
        "return F.scaled_dot_product_attention(q, k, v).reshape(b, t, d)",
        "return flash_attn_func(q, k, v).reshape(b, t, d)",
    ],
)
def test_attention_of_positions_and_of_other_layouts_is_fine(core: str) -> None:
    assert codes(module(SPLIT + core)) == []


STACK = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, h)

    def forward(self, x):
        return x + self.attn(x, x, x)[0]


class Model(nn.Module):
    def __init__(self, vocabulary, d, h, n):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, d), nn.Embedding(512, d)
        self.blocks = BLOCKS

    def forward(self, ids):
        b, t = ids.shape
        x = self.tokens(ids) + self.positions(torch.arange(t))
        CALL
"""
LOOP = "for block in self.blocks:\n            x = block(x)\n        return x"


@pytest.mark.parametrize(
    ("blocks", "call"),
    [
        ("nn.ModuleList([Block(d, h) for _ in range(n)])", LOOP),
        ("nn.Sequential(*[Block(d, h) for _ in range(n)])", "return self.blocks(x)"),
        ("nn.Sequential(nn.LayerNorm(d), Block(d, h))", "return self.blocks(x)"),
        ("nn.Sequential(nn.LayerNorm(d), nn.Sequential(Block(d, h), nn.Dropout(0.1)))", "return self.blocks(x)"),
    ],
)
def test_layer_inside_blocks_is_found_from_the_model_that_calls_them(blocks: str, call: str) -> None:
    source = STACK.replace("BLOCKS", blocks).replace("CALL", call)
    (finding,) = lint_source(source, "model.py")
    assert (finding.code, finding.location.line) == ("ATN305", 11)
    assert codes(source.replace("(d, h)\n", "(d, h, batch_first=True)\n")) == []
