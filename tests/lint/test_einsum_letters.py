"""Letters of an einsum that nothing else in it has (ATN307), and reshapes that move an axis (ATN310)."""

from __future__ import annotations

import textwrap

import pytest

from attn_guard.lint.einsum_letters import holds_lost_letter, lost_letters, told
from attn_guard.lint.run import lint_source
from tests.lint.sources import forward


@pytest.mark.parametrize(
    ("equation", "text"),
    [
        ("bhij,bihd->bihd", "axis j stands in one operand alone, "),
        ("bhqk,bhvd->bhqd", "axes k and v stand in one operand alone each, "),
        ("b g h n d, b h s d -> b h n s", "axis g stands "),
        ("dd,bxcd->bxcd", "axis d is named twice "),
        ("ee,bte->bte", "axis e is named twice "),
        ("b h i j, b h k d -> b h i d", "axes j and k stand "),
        ("b m bins, rows -> b m rows", "axis bins stands "),
        ("seed heads left, nodes heads right -> nodes heads", "axes seed, left and right stand "),
    ],
)
def test_letters_that_one_operand_has_alone_or_twice_are_lost(equation: str, text: str) -> None:
    assert told(list(lost_letters(equation))).startswith(text)
    assert holds_lost_letter(f'torch.einsum("{equation}", a, b)')
    assert holds_lost_letter(f"einsum(a, b, '{equation}')")


@pytest.mark.parametrize(
    "equation",
    [
        "bhid,bhjd->bhij",
        "bhij,bhjd->bihd",
        "...id,...jd->...ij",
        "bhqk->bqk",  # a sum of one operand is meant
        "ii->i",
        "bhqk,bhkd->bqd",  # heads are summed together with their own weights
        "i,j->ij",
        "bij,bjk",
        "b m bins, bins -> b m",
        "b i d, bjd -> b i j",
        "... i d, ... j d -> ... i j",
    ],
)
def test_sums_products_and_diagonals_that_are_meant_are_fine(equation: str) -> None:
    assert list(lost_letters(equation)) == []


def test_equation_made_at_run_time_is_not_read() -> None:
    assert not holds_lost_letter('einsum(f"b h i d, {kv} -> b h i j", q, k)')


def test_lost_letter_is_found_where_the_softmax_is_elsewhere() -> None:
    source = forward(
        "return self.o(torch.einsum('bhij,bhjd->bihd', (q @ k.mT * self.scale).softmax(-1), v).flatten(2))"
    )
    distance = "\n    def distance(self, w, x):\n        return torch.einsum('dd,bxcd->bxcd', w, x)\n"
    (finding,) = lint_source(source + distance, "attention.py")
    assert (finding.code, finding.location.line) == ("ATN307", source.count("\n") + 3)


def codes(body: str) -> list[str]:
    return [finding.code for finding in lint_source(forward(body), "attention.py") if finding.fails]


@pytest.mark.parametrize(
    "body",
    [
        # the weights of scores that are in sight: what is summed over are the keys
        "w = (q @ k.mT * self.scale).softmax(-1)\nreturn torch.einsum('bhij,bihd->bihd', w, x.view(b, t, 1, -1))",
        "w = einsum('bhid,bhjd->bhij', q * self.scale, k).softmax(-1)\nreturn einsum('...ij,...ihd->...ihd', w, v)",
        # an axis that was cut from another, or that a name was given
        "g = rearrange(x, 'b t (g d) -> b g t d', g=4)\nreturn einsum('bgtd,bsd->bts', g, x)",
        "g = rearrange(x, 'b t (g d) -> b g t d', g=self.heads // self.heads)\nreturn einsum('bgtd,bsd->bts', g, x)",
        "g = x.view(b, t, -1, 8)\nreturn einsum('btgd,bsd->bts', g, x)",
        # one axis under two letters, whatever the operands are
        "return einsum('blhe,bshd->bhls', mask, outside())",
    ],
)
def test_axis_that_is_summed_away_is_found_where_it_is_known(body: str) -> None:
    assert codes(body) == ["ATN307"]


@pytest.mark.parametrize(
    "body",
    [
        "path = outside(q, k).unsqueeze(1)\nreturn einsum('klmn,kjm->kjn', [path, x])",
        "path = self.norm(x).unsqueeze(1)\nreturn einsum('klmn,kjm->kjn', path, x)",
        "return einsum('klmn,kjm->kjn', mask, x)",
        "path = rearrange(x, 'b t d -> b 1 t d')\nreturn einsum('klmn,kjm->kjn', path, x)",
        "gate = einsum('bsd,dh->bsh', x, self.temperature).softmax(1)\nreturn einsum('bse,bsh->be', x, gate)",
    ],
)
def test_axis_that_may_have_one_column_is_fine(body: str) -> None:
    assert codes(body) == []


VIDEO = """\
import torch
from torch import nn


class Temporal(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(c, heads, batch_first=True)

    def forward(self, x):
        b, f, p, c = x.shape
"""


def video(body: str) -> list[str]:
    source = VIDEO + textwrap.indent(textwrap.dedent(body), " " * 8) + "        return self.attention(x, x, x)[0]\n"
    return [finding.code for finding in lint_source(source, "video.py")]


@pytest.mark.parametrize(
    "body",
    [
        "x = x.reshape(b * p, f, c)\n",
        "x = x.view(b, p, f, c).flatten(0, 1)\n",
        "x = x.transpose(1, 3).reshape(b * p, f, c)\n",
        "x = x.reshape(b * f, c, p).transpose(1, 2)\n",
        "x = torch.reshape(x, (b, c, f * p)).transpose(1, 2)\n",
    ],
)
def test_reshape_in_place_of_a_transpose_is_found(body: str) -> None:
    assert video(body) == ["ATN310"]


@pytest.mark.parametrize(
    "body",
    [
        "x = x.transpose(1, 2).reshape(b * p, f, c)\n",
        "x = x.reshape(b * f, p, c)\n",
        "x = x.reshape(b, f * p, c)\n",
        "x = x.permute(0, 3, 1, 2).reshape(b, c, f * p).transpose(1, 2)\n",
        "x = x.view(b, f, p // 4, 4, c).permute(0, 2, 1, 3, 4).reshape(-1, f * 4, c)\n",  # windows
        "x = x.reshape(b * f // 2, p * 2, c)\n",
        "n = outside(x)\nx = x.reshape(n, f, c)\n",
        "x = self.mixed(x)\nx = x.reshape(b * p, f, c)\n",
        "x = x[:, 1:].reshape(b * p, f - 1, c)\n",
    ],
)
def test_reshapes_that_join_and_split_neighbours_or_meet_unknown_sizes_are_fine(body: str) -> None:
    assert video(body) == []
