"""Head splits, merges and views: legal, illegal and scrambling."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source
from tests.lint.sources import HEAD, forward


def codes(source: str, *, preview: bool = False) -> list[str]:
    return [finding.code for finding in lint_source(source, "attention.py", preview=preview)]


def split(by: str) -> str:
    return forward(
        f"""
        def heads(p):
            return {by}
        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        return (q @ k.mT * self.scale).softmax(-1) @ v
        """
    )


@pytest.mark.parametrize(
    "by",
    [
        "p.view(b, self.heads, t, self.head_dim)",
        "p.reshape(b, self.heads, -1, self.head_dim)",
        "p.view(b * self.heads, -1, self.head_dim)",
        "p.contiguous().view(b, self.heads, t, -1)",
        "torch.reshape(p, (b, self.heads, t, self.head_dim))",
        "p.view(b, t, self.heads, self.head_dim).view(b, self.heads, t, self.head_dim)",
        "p.transpose(1, 2).reshape(b, t, self.heads, self.head_dim).transpose(1, 2)",
        "p.reshape(b, self.heads, self.head_dim, t).transpose(2, 3)",
        "p.reshape(b, -1).unflatten(1, (self.heads, t, self.head_dim))",
        "rearrange(p, 'b t (h d) -> b t h d', h=self.heads).reshape(b, self.heads, t, self.head_dim)",
    ],
)
def test_heads_cut_before_time_are_found(by: str) -> None:
    assert set(codes(split(by))) == {"ATN303"}


@pytest.mark.parametrize(
    "by",
    [
        "p.view(b, t, self.heads, self.head_dim).transpose(1, 2)",
        "p.view(b, -1, self.heads, self.head_dim).permute(0, 2, 1, 3)",
        "p.reshape(b, t, self.heads, -1).transpose(1, 2).reshape(b * self.heads, t, -1)",
        "rearrange(p, 'b t (h d) -> b h t d', h=self.heads)",
        "p.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)",
        "p.transpose(0, 1).view(t, b * self.heads, self.head_dim).transpose(0, 1)",
        "p.view(b, self.heads, 1, self.head_dim)",
        "p.view(*p.shape[:-1], self.heads, self.head_dim).transpose(1, 2)",
        "p.view(shape_from_elsewhere)",
        "p.unflatten(2, (self.heads, self.head_dim)).movedim(1, 2)",
        "p.view(b, t, self.heads, self.head_dim).swapaxes(1, 2)",
        "p.transpose(1, 2).reshape(b, self.heads, self.head_dim, t).transpose(2, 3)",
        "p.view(b * t, self.heads, self.head_dim).view(b, t, self.heads, -1).transpose(1, 2)",
        "p.view(batch_of_another, self.heads, t_of_another, self.head_dim)",
    ],
)
def test_right_and_unknown_splits_are_fine(by: str) -> None:
    assert codes(split(by)) == []


WINDOWS = """\
import torch
from torch import nn


class WindowAttention(nn.Module):
    def __init__(self, dim, heads, size):
        super().__init__()
        self.heads, self.size, self.scale = heads, size, (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        b, h, w, c = x.shape
        x = nn.functional.pad(x, (0, 0, 0, -w % self.size, 0, -h % self.size))
        high, wide = x.shape[1:-1]
        _h, _w = high // self.size, wide // self.size
        x = x.reshape(b, _h, self.size, _w, self.size, c).transpose(2, 3)
        qkv = self.qkv(x).reshape(SHAPE)
        q, k, v = qkv[0], qkv[1], qkv[2]
        return (q @ k.mT * self.scale).softmax(-1) @ v
"""


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ("b, _h * _w, self.size ** 2, 3, self.heads, c // self.heads).permute(3, 0, 1, 4, 2, 5", []),
        ("b, self.heads, _h, _w, self.size ** 2, 3, c // self.heads).permute(5, 0, 2, 3, 1, 4, 6", ["ATN303"]),
    ],
)
def test_counts_of_windows_are_no_heads(shape: str, found: list[str]) -> None:
    assert codes(WINDOWS.replace("SHAPE", shape)) == found


ONE_PROJECTION_AT_A_TIME = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, input_dim, attention_dim=None, num_heads=1):
        super().__init__()
        if attention_dim is None:
            attention_dim = input_dim // num_heads
        self.attention_dim, self.num_heads = attention_dim, num_heads
        self.q, self.k, self.v = (nn.Linear(input_dim, num_heads * attention_dim) for _ in range(3))

    def forward(self, query, key, value):
        n = query.size(0)
        q, k, v = (VIEW for p in (self.q(query), self.k(key), self.v(value)))
        return (q @ k.mT * self.attention_dim**-0.5).softmax(-1) @ v
"""


@pytest.mark.parametrize(
    ("view", "found"),
    [
        ("p.view(n * self.num_heads, -1, self.attention_dim)", {"ATN303"}),
        ("p.view(n, self.num_heads, -1, self.attention_dim)", {"ATN303"}),
        ("p.view(n, -1, self.num_heads, self.attention_dim).transpose(1, 2)", set()),
        ("p.view(-1, n * self.num_heads, self.attention_dim).transpose(0, 1)", set()),
        ("p.view(n, self.num_heads, 1, self.attention_dim)", set()),
        ("p.view(n * self.num_heads, self.attention_dim)", set()),
    ],
)
def test_heads_cut_from_a_projection_whose_input_nobody_has_measured(view: str, found: set[str]) -> None:
    assert set(codes(ONE_PROJECTION_AT_A_TIME.replace("VIEW", view))) == found


def test_heads_cut_from_either_of_two_projections_are_found_behind_the_branch() -> None:
    """What both branches leave is known axis by axis."""
    source = forward(
        """
        if mask is None:
            q, k, v = (self.q(x).view(b, t, self.heads, self.head_dim) for _ in range(3))
        else:
            n, s, _ = mask.shape
            q, k, v = (self.q(mask).view(b, s, self.heads, self.head_dim) for _ in range(3))
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        c = (q @ k.mT * self.scale).softmax(-1) @ v
        return self.o(c.reshape(b, t, self.d_model))
        """
    )
    assert codes(source) == ["ATN304"]


def merge(by: str) -> str:
    return forward(f"c = (q @ k.mT * self.scale).softmax(-1) @ v\nreturn self.o({by})")


@pytest.mark.parametrize(
    "by",
    [
        "c.reshape(b, t, self.d_model)",
        "c.view(b, t, -1)",
        "c.contiguous().view(b, -1, self.d_model)",
        "c.flatten(1, 2).reshape(b, t, -1)",
        "c.transpose(-1, -2).reshape(b, t, self.d_model)",
        "c.permute(0, 1, 2, 3).flatten(2).view(b, t, self.d_model)",
        "c.transpose(1, 2).swapaxes(1, 2).reshape(b, t, -1)",
        "rearrange(c, 'b h t d -> b h (t d)').reshape(b, t, self.d_model)",
        "c.reshape(b * self.heads, t, self.head_dim).view(b, t, self.d_model)",
    ],
)
def test_heads_merged_before_time_are_found(by: str) -> None:
    assert codes(merge(by)) == ["ATN304"]


@pytest.mark.parametrize(
    "by",
    [
        "c.transpose(1, 2).reshape(b, t, self.d_model)",
        "c.transpose(1, 2).contiguous().view(b, t, -1)",
        "c.permute(0, 2, 1, 3).flatten(2)",
        "rearrange(c, 'b h t d -> b t (h d)')",
        "c.reshape(b * self.heads, t, self.head_dim)",
        "c.reshape(b, -1)",
        "c.sum(1)",
        "c.view(b, self.heads, -1)",
    ],
)
def test_right_and_unknown_merges_are_fine(by: str) -> None:
    assert codes(merge(by)) == []


@pytest.mark.parametrize(
    "by",
    [
        "c.transpose(1, 2).view(b, t, self.d_model)",
        "c.permute(0, 2, 1, 3).view(b, t, -1)",
        "c.transpose(1, 2).view(b * t, -1)",
    ],
)
def test_view_of_a_transposed_context_is_found(by: str) -> None:
    (finding,) = lint_source(merge(by), "attention.py")
    assert finding.code == "ATN302"
    assert finding.related[0][1] == "transposed here"


@pytest.mark.parametrize(
    "body",
    [
        "return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).view(b, t, self.d_model)",
        "return torch.einsum('bhij,bjhd->bihd', (q @ k.mT * self.scale).softmax(-1), v.transpose(1, 2)).view(b, t, -1)",
        "y = self.o(x).transpose(0, 1).view(t, b, self.heads, self.head_dim)",
        "y = x.transpose(1, 2).view(b, -1)",
        "y = outside(x).transpose(1, 2).view(b, -1)",
    ],
)
def test_views_that_are_legal_or_of_unknown_memory_are_fine(body: str) -> None:
    assert "ATN302" not in codes(forward(body))


UNCHECKED = (
    HEAD.replace("        assert d_model % heads == 0\n", "")
    + "        return (q @ k.mT * self.scale).softmax(-1) @ v\n"
)


def test_unchecked_division_by_heads_is_found_in_preview() -> None:
    assert codes(UNCHECKED, preview=True) == ["ATN301"]
    assert codes(UNCHECKED) == []


@pytest.mark.parametrize(
    "check",
    [
        "assert d_model % heads == 0",
        "if d_model % heads: raise ValueError",
        "assert (d_model % self.heads) == 0",
        "check_divisible(d_model, heads)",
    ],
)
def test_checked_division_by_heads_is_fine(check: str) -> None:
    source = UNCHECKED.replace("super().__init__()", f"super().__init__()\n        {check}")
    assert codes(source, preview=True) == []


def test_sizes_that_a_config_may_have_checked_are_fine() -> None:
    source = UNCHECKED.replace("d_model // heads", "config.hidden_size // config.num_attention_heads")
    assert codes(source, preview=True) == []


def test_division_checked_in_a_base_class_of_the_file_is_fine() -> None:
    base = "class Base(object):\n    def check(self, d, heads):\n        assert d % heads == 0\n\n\n"
    source = UNCHECKED.replace("class Attention(nn.Module)", "class Attention(Base)")
    assert codes(source.replace("class Attention", base + "class Attention"), preview=True) == []


SIZES_IN_ONE_LINE = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, dim, length, k=256, heads=8):
        super().__init__()
        self.k, self.heads, self.dim_head = k, heads, dim // heads
        self.to_q = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d, d_h, h, k = *x.shape, self.dim_head, self.heads, self.k
        q = self.to_q(x).reshape(VIEW).transpose(1, 2)
        return torch.softmax(q @ q.transpose(-2, -1) * d_h ** -0.5, dim=-1) @ q
"""


@pytest.mark.parametrize(("view", "found"), [("b, n, h, -1", []), ("b, h, n, -1", ["ATN303", "ATN306"])])
def test_sizes_that_are_unpacked_behind_a_shape_are_known_from_the_end(view: str, found: list[str]) -> None:
    report = lint_source(SIZES_IN_ONE_LINE.replace("VIEW", view), "attention.py")
    assert [finding.code for finding in report if finding.code != "ATN304"] == found


def test_transposes_of_all_axes_belong_to_another_library() -> None:
    source = """
def images(mx, tower, x):
    batch, freq, steps, channels = x.shape
    x = x.transpose(0, 2, 3, 1).reshape(batch, steps, channels * freq)
    return mx.softmax(x @ x.transpose(0, 2, 1), axis=-1) @ x
"""
    assert list(lint_source(source, "a.py")) == []


FOLDED = """

def shifted(z):
    b, t, s = z.size()
    z = F.pad(z, (0, t + 1)).view(b, -1)
    return z[:, :-t].view(b, t, s + t)


class Shifted(Attention):
    def fold(self, x):
        x = x.view(*x.shape[:-1], self.heads, self.head_dim).transpose(1, 2).contiguous()
        return x.view(-1, x.size(-2), x.size(-1))

    def forward(self, q, k, v):
        {sizes}
        q, k, v = self.fold(self.q(q)), self.fold(self.k(k)), trimmed(self.fold(self.v(v)))
        weights = shifted(trimmed((q @ k.mT * self.scale).softmax(dim=-1)))
        out = (weights @ v).view(b, self.heads, t, self.head_dim)
        return self.o(out.transpose(1, 2).reshape(b, t, -1))
"""


@pytest.mark.parametrize("sizes", ["b, t = q.size(0), q.size(1)", "b, t, _ = q.shape"])
def test_sizes_of_a_helper_are_not_those_of_its_caller_under_the_same_names(sizes: str) -> None:
    assert codes(HEAD + "        return x\n" + FOLDED.format(sizes=sizes)) == []
