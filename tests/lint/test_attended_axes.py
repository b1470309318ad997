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


@pytest.mark.parametrize(
    ("stack", "imported"),
    [
        ("TransformerEncoder(Block(d, h), n)", "from .stacks import TransformerEncoder"),
        ("nn.TransformerEncoder(Block(d, h), num_layers=n)", ""),
        ("nn.ModuleList([TransformerEncoder(Block(d, h), n)])", "from .stacks import TransformerEncoder"),
    ],
)
def test_stack_of_another_file_that_is_called_as_that_of_torch_runs_its_layer_on_what_it_gets(
    stack: str, imported: str
) -> None:
    called = "self.blocks[0](x, positions=None)" if "ModuleList" in stack else "self.blocks(x)"
    source = STACK.replace("from torch import nn", f"from torch import nn\n{imported}")
    source = source.replace("BLOCKS", stack).replace("CALL", f"return {called}")
    (finding,) = lint_source(source, "model.py")
    assert finding.code == "ATN305"
    assert "self.attn(" in source.splitlines()[finding.location.line - 1]
    assert codes(source.replace("CALL", "").replace("Block(d, h)", "make_block(d, h)")) == []
    assert codes(source.replace("(d, h)\n", "(d, h, batch_first=True)\n")) == []


FOLDED = [
    "x = x.view([-1] + shape[-2:])",
    "x = x.reshape(-1, *x.shape[-2:])",
    "x = x.reshape(-1, x.size(-2), x.size(-1))",
]


@pytest.mark.parametrize("fold", FOLDED)
@pytest.mark.parametrize("layer", [TIME_FIRST[0], TIME_FIRST[3]])
def test_layer_along_everything_that_was_folded_into_one_axis_is_found(fold: str, layer: str) -> None:
    body = f"x = self.embedding(x)\nshape = list(x.size())\n{fold}\nreturn self.layer(x, x, x)[0]"
    (finding,) = lint_source(module(body, layer), "encoder.py")
    assert finding.code == "ATN305"
    assert finding.notes[0].startswith("the input is (x.shape[:-2], x.shape[-2], ")
    assert codes(module(body, BATCH_FIRST[0])) == []


@pytest.mark.parametrize(
    "fold",
    [
        "x = x.view([-1] + shape[-2:]).transpose(0, 1)",
        "x = x.reshape(-1, n, x.shape[-1])",
        "x = x.reshape(-1, x.shape[-1])",
        "x = x.reshape(-1, 1, x.shape[-1])",
    ],
)
def test_other_folds_are_fine(fold: str) -> None:
    body = f"x = self.embedding(x)\nshape = list(x.size())\n{fold}\nreturn self.layer(x, x, x)[0]"
    assert codes(module(body)) == []


TRAINED = """\


def train(model, train_loader, device):
    model.train()
    for batch in train_loader:
        batch = batch.to(device)
        loss = model(batch).sum()
        loss.backward()


model = Encoder(100, 64, 8).to("cuda")
train(model, DataLoader(ids, batch_size=8), "cuda")
"""
LOADED = "x = self.embedding(x)\nreturn self.layer(x, x, x)[0]"


def trained(body: str = LOADED, training: str = TRAINED, layer: str = TIME_FIRST[0]) -> str:
    source = module(body, layer).replace(
        "from torch import nn", "from torch import nn\nfrom torch.utils.data import DataLoader"
    )
    return source + training


@pytest.mark.parametrize(
    "loop",
    [
        "for batch in train_loader:",
        "for batch, target in train_loader:",
        "for step, (batch, target) in enumerate(train_loader):",
        "for batch in tqdm(train_loader, desc='train'):",
    ],
)
def test_batches_of_a_loader_come_first(loop: str) -> None:
    source = trained(training=TRAINED.replace("for batch in train_loader:", loop))
    (finding,) = lint_source(source, "encoder.py")
    assert (finding.code, finding.severity) == ("ATN305", Severity.WARNING)
    place, label = finding.related[0]
    assert label == "a DataLoader gives the batch first"
    assert loop in source.splitlines()[place.line - 1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("batch.to(device)", "batch.t().to(device)"),
        ("batch.to(device)", "batch.transpose(0, 1)"),
        ("batch_size=8", "batch_size=8, collate_fn=time_first"),
        ("model(batch)", "model(other)"),
        ("model = Encoder", "other = Encoder"),
        ("train_loader", "batches"),
    ],
)
def test_loaders_whose_batches_may_be_arranged_otherwise_are_fine(old: str, new: str) -> None:
    assert codes(trained(training=TRAINED.replace(old, new))) == []


def test_batch_first_layers_and_inputs_that_are_turned_round_are_fine_under_a_loader() -> None:
    assert codes(trained(layer=BATCH_FIRST[0])) == []
    assert codes(trained("x = self.embedding(x).transpose(0, 1)\nreturn self.layer(x, x, x)[0]")) == []
    assert codes(trained("x = self.embedding(x.t())\nreturn self.layer(x, x, x)[0]")) == []


TABLE = """\
import torch
from torch import nn


class Positions(nn.Module):
    def __init__(self, d_model, longest=512, batch_first=False):
        super().__init__()
        self.time = 1 if batch_first else 0
        pe = torch.zeros(longest, d_model)
        pe[:, 0::2] = torch.sin(torch.arange(longest)[:, None])
        MADE

    def forward(self, x):
        BODY
"""
TIME_LEADS = [
    "self.register_buffer('pe', pe.unsqueeze(1))",
    "pe = pe.unsqueeze(0).transpose(0, 1)\n        self.register_buffer('pe', pe)",
    "self.pe = nn.Parameter(torch.randn(longest, 1, d_model))",
    "self.pe = nn.Parameter(torch.randn((longest, 1, d_model)), requires_grad=False)",
]
BATCH_OF_ONE = [
    "self.register_buffer('pe', pe.unsqueeze(0))",
    "self.pe = nn.Parameter(torch.zeros(1, longest, d_model))",
]


# how many there are was asked when they lay along another axis
MOVED = "b, n, t, d = x.shape\nx = x.transpose(1, 2)\nreturn x + self.pe[:, :n]"


def table(made: str, body: str) -> str:
    return TABLE.replace("MADE", made).replace("BODY", body.replace("\n", "\n        "))


@pytest.mark.parametrize("made", TIME_LEADS)
@pytest.mark.parametrize(
    "body",
    [
        "return x + self.pe[: x.size(self.time)]",
        "b, t, d = x.shape\nreturn x + self.pe[: x.size(1)].to(x.device)",
        "b, t, d = x.shape\nx = x + self.pe[: x.shape[1], :]\nreturn x",
    ],
)
def test_table_that_lies_along_another_axis_than_it_is_cut_for_is_found(made: str, body: str) -> None:
    (finding,) = lint_source(table(made, body), "positions.py")
    assert finding.code == "ATN707"
    assert finding.message == "the table is cut to the length of one axis and added along another"


@pytest.mark.parametrize("made", BATCH_OF_ONE)
def test_table_behind_a_batch_of_one_that_is_cut_to_the_batch_is_found(made: str) -> None:
    assert codes(table(made, "b, t, d = x.shape\nreturn x + self.pe[:, : x.size(0)]")) == ["ATN707"]


@pytest.mark.parametrize(
    ("made", "body"),
    [
        *((made, "return x + self.pe[: x.size(0)]") for made in TIME_LEADS),
        *((made, "t, b, d = x.shape\nreturn x + self.pe[: x.size(0)]") for made in TIME_LEADS),
        *((made, "return x + self.pe[: x.size(1)]") for made in TIME_LEADS),  # x may have four axes
        *((made, "b, t, n, d = x.shape\nreturn x + self.pe[: x.size(1)]") for made in TIME_LEADS),
        *((made, "b, t, d = x.shape\nreturn x + self.pe[: x.size(1)].transpose(0, 1)") for made in TIME_LEADS),
        *((made, "b, t, d = x.shape\nreturn x + self.pe[: x.size(1), 0]") for made in TIME_LEADS),
        *((made, "b, t, d = x.shape\nreturn x + self.pe[:, : x.size(1)]") for made in BATCH_OF_ONE),
        ("self.pe = nn.Parameter(torch.zeros(1, longest, d_model))", MOVED),
        ("self.register_buffer('pe', pe)", "b, t, d = x.shape\nreturn x + self.pe[: x.size(1)]"),
        ("self.register_buffer('pe', make(pe))", "b, t, d = x.shape\nreturn x + self.pe[: x.size(1)]"),
        ("self.pe = table_of(longest)", "return x + self.pe[: x.size(self.time)]"),
    ],
)
def test_tables_along_the_axis_they_are_cut_for_and_of_unknown_shape_are_fine(made: str, body: str) -> None:
    assert codes(table(made, body)) == []
