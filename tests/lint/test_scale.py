"""Which scales the reader recovers, and where it says that it does not know."""

from __future__ import annotations

import textwrap

import pytest

from attn_guard.anatomy import Factor, Size
from attn_guard.findings import Severity
from attn_guard.lint.judge import sites_of
from attn_guard.lint.run import lint_source
from tests.lint.sources import attention, forward

RIGHT = Factor(size=Size.HEAD_DIM, power=-0.5)


def scale_of(source: str) -> Factor | None:
    (site,) = sites_of(source)
    return site.scale


def codes(source: str) -> list[str]:
    return [finding.code for finding in lint_source(source, "attention.py")]


@pytest.mark.parametrize(
    "scores",
    [
        "q @ k.transpose(-2, -1) * self.scale",
        "q @ k.mT / math.sqrt(self.head_dim)",
        "torch.matmul(q, k.transpose(2, 3)) / self.head_dim ** 0.5",
        "(q * self.scale) @ k.transpose(-1, -2)",
        "torch.einsum('bhid,bhjd->bhij', q, k) * (1 / math.sqrt(self.head_dim))",
        "einsum('b h i d, b h j d -> b h i j', q, k) * self.scale",
        "(q * self.head_dim ** -0.25) @ (k * self.head_dim ** -0.25).transpose(-1, -2)",
        "q.matmul(k.transpose(-2, -1)).mul(self.scale)",
        "q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))",
        "q @ k.transpose(-2, -1) * (self.d_model // self.heads) ** -0.5",
        "torch.div(q @ k.mT, math.sqrt(self.head_dim))",
    ],
)
def test_right_scale_is_recovered_from_every_way_to_write_it(scores: str) -> None:
    assert scale_of(attention(scores)) == RIGHT
    assert codes(attention(scores)) == []


@pytest.mark.parametrize(
    "scores",
    [
        "q @ k.transpose(-2, -1)",
        "torch.matmul(q, k.mT)",
        "torch.einsum('bhid,bhjd->bhij', q, k)",
        "torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2))",
        "self.drop(q) @ k.contiguous().transpose(-2, -1).float()",
    ],
)
def test_missing_scale_is_found(scores: str) -> None:
    assert codes(attention(scores)) == ["ATN101"]


def test_a_scale_of_1_that_is_written_out_is_a_remark() -> None:
    for call in ("F.scaled_dot_product_attention(q, k, v, scale=1.0)", "((q @ k.mT) * 1.0).softmax(-1) @ v"):
        (finding,) = lint_source(forward(f"return {call}"), "attention.py")
        assert (finding.code, finding.severity, finding.found) == ("ATN101", Severity.INFO, "1")
    (finding,) = lint_source(attention("q @ k.mT"), "attention.py")
    assert finding.severity is Severity.ERROR


RELATIVE = """

class Distances(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.table = nn.Embedding(64, heads)

    def forward(self, t):
        values = self.table(torch.arange(t)[None, :] - torch.arange(t)[:, None] + t)
        return values.permute(2, 0, 1)


class Encoder(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.attention, self.distances = Attention(d_model, heads), Distances(heads)

    def forward(self, x):
        NAME = self.distances(x.shape[1])
        return self.attention(x, mask=NAME)
"""


@pytest.mark.parametrize(
    ("name", "found"), [("pos_bias", []), ("position_bias", []), ("rel_bias", []), ("bias", ["ATN101"])]
)
def test_a_bias_of_positions_that_comes_in_as_the_mask_is_one(name: str, found: list[str]) -> None:
    assert codes(attention("q @ k.mT", "scores = scores + mask") + RELATIVE.replace("NAME", name)) == found


def test_missing_scale_is_found_through_generator_lambda_and_map() -> None:
    body = """
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        q, k, v = map(lambda part: part.contiguous(), (q, k, v))
        return self.softmax(q @ k.mT) @ v
    """
    assert codes(forward(body)) == ["ATN101"]


@pytest.mark.parametrize(
    "scores",
    [
        "q @ k.mT / self.d_model ** 0.5",
        "q @ k.mT * self.d_model ** -0.5",
        "torch.einsum('bhid,bhjd->bhij', q, k) / math.sqrt(self.d_model)",
        "q @ k.mT / self.head_dim",
    ],
)
def test_scale_by_another_size_is_found(scores: str) -> None:
    assert codes(attention(scores)) == ["ATN102"]


@pytest.mark.parametrize(
    "scores",
    [
        "self.norm(q) @ self.norm(k).mT",
        "F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.temperature",
        "q @ k.mT * self.temperature",
        "q @ k.mT / self.temperature.exp()",
        "torch.tanh(q @ k.mT / 30.0) * 30.0",
        "rotate(q) @ rotate(k).mT",
        "q @ k.mT * scale_given_from_outside",
        "self.score(q, k)",
        "apply(q @ k.mT)",
        "q @ k.mT * (self.scale if t > 1 else 1.0)",
        "q @ k.mT + self.position_bias",
    ],
)
def test_unknown_or_bounded_scores_are_never_flagged(scores: str) -> None:
    assert codes(attention(scores)) == []


def test_scale_in_one_branch_only_is_unknown() -> None:
    source = attention("q @ k.mT", "if self.training:\n    scores = scores * self.scale")
    assert scale_of(source) is None
    assert codes(source) == []


def test_scale_that_another_method_may_change_is_unknown() -> None:
    source = attention() + "\n    def set_scale(self, scale):\n        self.scale = scale\n"
    assert scale_of(source) is None


def test_d_model_of_a_single_head_is_its_head_dim() -> None:
    source = """
import torch.nn as nn
class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.scale = dim ** -0.5
    def forward(self, x):
        return (self.q(x) @ self.k(x).mT * self.scale).softmax(-1) @ self.v(x)
"""
    assert scale_of(source) == RIGHT
    assert codes(source) == []


def test_scale_of_the_input_width_is_wrong_for_a_narrower_head() -> None:
    source = """
import torch.nn as nn
class Head(nn.Module):
    def __init__(self, n_embd, head_size):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(n_embd, head_size) for _ in range(3))
    def forward(self, x):
        B, T, C = x.shape
        return (self.q(x) @ self.k(x).transpose(-2, -1) * C ** -0.5).softmax(-1) @ self.v(x)
"""
    assert codes(source) == ["ATN102"]


def test_scale_given_to_the_constructor_of_a_helper_class_is_followed() -> None:
    source = """
import torch.nn as nn
class Core(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature
    def forward(self, q, k, v):
        return (q / self.temperature @ k.transpose(2, 3)).softmax(-1) @ v
class Attention(nn.Module):
    def __init__(self, d_model, n_head, d_k):
        super().__init__()
        self.n_head, self.d_k = n_head, d_k
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, n_head * d_k) for _ in range(3))
        self.core = Core(temperature=d_k ** 0.5)
    def split(self, x):
        return x.view(x.size(0), x.size(1), self.n_head, self.d_k).transpose(1, 2)
    def forward(self, x):
        return self.core(self.split(self.w_q(x)), self.split(self.w_k(x)), self.split(self.w_v(x)))
"""
    assert scale_of(source) == RIGHT


HELPER = """
import torch
def attend(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v
"""


def test_helper_that_no_caller_in_the_file_scales_for_is_flagged() -> None:
    assert codes(HELPER) == ["ATN101"]


@pytest.mark.parametrize(
    "call", ["attend(q * q.size(-1) ** -0.5, k, v)", "attend(scaled(q), k, v)", "attend(*prepared(q, k, v))"]
)
def test_helper_whose_callers_may_scale_is_left_alone(call: str) -> None:
    assert codes(f"{HELPER}\ndef outer(q, k, v):\n    return {call}\n") == []


def test_fused_attention_brings_its_own_scale() -> None:
    body = "return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))"
    assert scale_of(forward(body)) == RIGHT
    assert codes(forward(body)) == []


@pytest.mark.parametrize("scale", ["1.0", "1 / 8", "SCALE"])
def test_declared_scale_is_respected(scale: str) -> None:
    source = attention("q @ k.mT").replace("class Attention", f"@attn_guard.contract(scale={scale})\nclass Attention")
    assert codes(source) == []


def test_bilinear_attention_which_projects_one_side_only_is_left_alone() -> None:
    source = """
import torch
import torch.nn as nn
class Luong(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.W = nn.Linear(d, d)
    def forward(self, query, y):
        return torch.softmax(torch.bmm(query, self.W(y).transpose(2, 1)), dim=2) @ y
"""
    assert codes(source) == []


@pytest.mark.parametrize("split", ["self.qkv(x).unbind(-1)", "self.qkv(x).chunk(3, dim=-1)"])
def test_queries_and_keys_of_one_feature_need_no_scale(split: str) -> None:
    source = f"""
import torch.nn as nn
class Scalars(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(1, 3)
    def forward(self, x):
        q, k, v = {split}
        return (q @ k.transpose(-1, -2)).softmax(dim=-1) @ v
"""
    assert codes(source) == []


@pytest.mark.parametrize(
    "core",
    [
        "torch.softmax(x @ self.codebook.t(), -1) @ self.codebook",
        "torch.softmax(self.router(x), -1) @ x",
        "torch.softmax(self.f(x).view(2, 3, -1) @ self.g(x).view(2, -1, 3), -1) @ x",
    ],
)
def test_products_that_are_no_attention_of_projections_are_left_alone(core: str) -> None:
    source = f"""
import torch
import torch.nn as nn
class Other(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.codebook = nn.Parameter(torch.randn(8, dim))
        self.router = nn.Linear(dim, 4)
        self.f, self.g = nn.Conv2d(dim, dim, 1), nn.Conv2d(dim, dim, 1)
    def forward(self, x):
        return {core}
"""
    assert codes(source) == []


OVERRIDDEN = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.temperature = {temperature}
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

    def weigh(self, q, k):
        raise NotImplementedError

    def forward(self, x):
        return {call} @ self.v(x)


class Dense(Attention):
    def weigh(self, q, k):
        return torch.softmax(q @ k.transpose(-2, -1), dim=-1)
"""


def test_what_a_method_is_given_where_a_base_class_calls_it_is_unknown() -> None:
    source = OVERRIDDEN.format(temperature="0.1", call="self.weigh(self.q(x), self.temperature * self.k(x))")
    assert codes(source) == []


def test_a_method_that_nobody_in_the_file_calls_is_taken_as_it_stands() -> None:
    source = OVERRIDDEN.format(temperature="0.1", call="self.other(x)")
    source = source.replace("dim=-1)\n", "dim=-1) @ v\n").replace("weigh(self, q, k)", "weigh(self, q, k, v)")
    assert codes(source) == ["ATN101"]


WIDTH = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, feats: int, head: int = 8):
        super().__init__()
        self.head, self.feats = head, feats
        self.root = ROOT
        self.q, self.k, self.v = (nn.Linear(feats, feats) for _ in range(3))

    def forward(self, x):
        b, n, f = x.size()
        q = self.q(x).view(b, n, self.head, self.feats // self.head).transpose(1, 2)
        k = self.k(x).view(b, n, self.head, self.feats // self.head).transpose(1, 2)
        v = self.v(x).view(b, n, self.head, self.feats // self.head).transpose(1, 2)
        w = torch.softmax(q @ k.mT / self.root, -1)
        return (w @ v).transpose(1, 2).flatten(2)
"""


@pytest.mark.parametrize("name", ["feats", "planes", "n_out"])
@pytest.mark.parametrize("root", ["feats**0.5", "self.feats**0.5", "math.sqrt(feats)"])
def test_width_that_is_divided_by_the_heads_is_known_by_that_whatever_its_name(name: str, root: str) -> None:
    source = WIDTH.replace("ROOT", root).replace("feats", name)
    (finding,) = lint_source(source, "attention.py", ignore=["ATN301"])
    assert (finding.code, finding.message) == ("ATN102", "scores are divided by √d_model")


@pytest.mark.parametrize("root", ["(feats // head) ** 0.5", "(self.feats // self.head) ** 0.5", "other**0.5", "9.0"])
def test_root_of_the_width_of_a_head_and_of_something_else_are_fine(root: str) -> None:
    source = WIDTH.replace("ROOT", root).replace("head: int = 8", "head: int = 8, other: int = 7")
    assert codes(source) == []


ROTATED = """\
import torch
from torch import nn


class Rotary(nn.Module):
    def forward(self, x, positions):
        angles = (self.frequencies[None, :, None] @ positions[:, None].float()).transpose(1, 2)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def halves(x):
    return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1)


def turned(q, k, cos, sin):
    return q * cos + halves(q) * sin, k * cos + halves(k) * sin


class Attention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        assert d_model % heads == 0
        self.heads, self.head_dim = heads, d_model // heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.rotary = Rotary()

    def forward(self, x, positions):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, self.heads, self.head_dim).transpose(1, 2) for f in (self.q, self.k, self.v))
        cos, sin = self.rotary(v, positions)
        q, k = turned(q, k, cos, sin)
        weights = SCORES.softmax(-1)
        return self.o((weights @ v).transpose(1, 2).reshape(b, t, -1))
"""


def test_a_rotation_by_a_module_of_the_file_changes_no_scale() -> None:
    right, without = "(q @ k.mT * self.head_dim**-0.5)", "(q @ k.mT)"
    assert [found.code for found in lint_source(ROTATED.replace("SCORES", right), "m.py")] == []
    assert [found.code for found in lint_source(ROTATED.replace("SCORES", without), "m.py")] == ["ATN101"]


@pytest.mark.parametrize("width", ["{x}.shape[-1]", "{x}.size(-1)", "{x}.size()[-1]"])
@pytest.mark.parametrize("name", ["dim", "d_model", "embed_dim"])
@pytest.mark.parametrize("x", ["q", "k"])
def test_width_that_is_read_from_a_query_or_key_is_its_own_whatever_its_name(width: str, name: str, x: str) -> None:
    source = f"""
        import torch


        def attend(q, k, v):
            {name} = {width.format(x=x)}
            return torch.softmax(q @ k.transpose(-2, -1) / {name} ** 0.5, dim=-1) @ v
    """
    assert scale_of(textwrap.dedent(source)) == RIGHT
    assert codes(textwrap.dedent(source)) == []


def test_width_of_a_query_before_it_is_split_is_not_that_of_a_head() -> None:
    body = """
        d_model = query.size(-1)
        q, k = (part.view(b, t, self.heads, self.head_dim).transpose(1, 2) for part in (self.q(query), self.k(x)))
        return self.o((torch.softmax(q @ k.mT / d_model ** 0.5, dim=-1) @ v).transpose(1, 2).reshape(b, t, -1))
    """
    assert codes(forward(body).replace("mask=None", "query")) == ["ATN102"]


@pytest.mark.parametrize(
    "context",
    ["(k.mT @ v).softmax(dim=-2)", "einsum('bhnd,bhne->bhde', k, v).softmax(dim=-2)", "(v.mT @ k).mT.softmax(dim=-1)"],
)
def test_product_of_key_and_value_holds_no_scores(context: str) -> None:
    """Linear attention, as Shen et al. 2018 have it, and with another softmax."""
    body = f"q = q.softmax(dim=-1)\ncontext = {context}\nreturn self.o(q @ context)"
    assert codes(forward(body)) == []


@pytest.mark.parametrize(
    ("operands", "expected"),
    [("q, k, v", []), ("(self.split(made) for made in (self.q(q), self.k(k), self.v(v)))", ["ATN102"])],
)
def test_root_of_the_width_may_be_right_where_no_heads_are_in_sight(operands: str, expected: list[str]) -> None:
    source = f"""
        import torch
        import torch.nn as nn


        class Attention(nn.Module):
            def __init__(self, d_model, heads):
                super().__init__()
                self.heads = heads
                self.d_model = d_model
                self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))

            def split(self, x):
                b, t, _ = x.shape
                return x.view(b, t, self.heads, self.d_model // self.heads).transpose(1, 2)

            def forward(self, q, k, v):
                q, k, v = {operands}
                return torch.softmax(torch.matmul(q, k.transpose(-2, -1)) / self.d_model ** 0.5, dim=-1) @ v
    """
    assert codes(textwrap.dedent(source)) == expected
