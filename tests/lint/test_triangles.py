"""Causal masks: where their triangle ends, in every spelling, and what is added to the scores as numbers."""

from __future__ import annotations

import pytest

from attn_guard.findings import Severity
from attn_guard.lint.run import lint_source
from tests.lint.sources import LINES_BEFORE, attention, forward
from tests.lint.test_masks import codes, multihead

FUSED = "{}\nreturn F.scaled_dot_product_attention(q, k, v, attn_mask=keep)"
MASKED = "{}\nscores = scores.masked_fill(hide, float('-inf'))"

KEEP_TOO_MUCH = [
    "keep = torch.ones(t, t, dtype=torch.bool).tril(1)",
    "keep = torch.tril(torch.ones(t, t), diagonal=1).bool()",
    "keep = torch.tril(torch.ones((t, t)), 1) == 1",
    "keep = ~torch.triu(torch.ones(t, t, dtype=torch.bool), 2)",
    "keep = torch.triu(torch.ones(t, t), diagonal=2) == 0",
    "keep = torch.ones(t, t).tril(1).bool()[None, None]",
    "i = torch.arange(t)\nkeep = i[None, :] <= i[:, None] + 1",
    "i = torch.arange(t, device=x.device)\nkeep = i.unsqueeze(0) < i.unsqueeze(1) + 2",
    "i = torch.arange(t).view(-1, 1)\nj = torch.arange(t).view(1, -1)\nkeep = i - j >= -1",
    "keep = torch.full((t, t), float('-inf')).triu(2)",
    "keep = torch.zeros(t, t).masked_fill(torch.ones(t, t).triu(2).bool(), float('-inf'))",
    "keep = torch.where(torch.ones(t, t).tril(1).bool(), 0.0, float('-inf'))",
    "keep = torch.empty(t, t)\nkeep.fill_(float('-inf'))\nkeep.triu_(2)",
    "keep = torch.ones(t, t, dtype=torch.bool).tril(1) & (ids != pad_id)[:, None, None]",
]


@pytest.mark.parametrize("keep", KEEP_TOO_MUCH)
def test_mask_that_keeps_one_later_key_is_found(keep: str) -> None:
    assert codes(forward(FUSED.format(keep))) == ["ATN215"]


@pytest.mark.parametrize(
    "hide",
    [
        "hide = torch.triu(torch.ones(t, t)).bool()",
        "hide = torch.ones(t, t, dtype=torch.bool).triu(diagonal=0)",
        "hide = torch.tril(torch.ones(t, t), diagonal=-1) == 0",
        "hide = torch.ones(t, t, dtype=torch.bool).tril(-1).logical_not()",
        "hide = torch.arange(t)[None, :] >= torch.arange(t)[:, None]",
        "hide = torch.arange(t)[None, :].ge(torch.arange(t)[:, None])",
        "hide = torch.triu(torch.ones(t, t)).bool() | (ids == pad_id)[:, None, None]",
    ],
)
def test_mask_that_hides_the_own_key_is_found(hide: str) -> None:
    (finding,) = lint_source(attention(then=MASKED.format(hide)), "attention.py")
    assert (finding.code, finding.severity) == ("ATN215", Severity.WARNING)
    assert "own key" in finding.message


@pytest.mark.parametrize(
    "keep",
    [
        "keep = torch.ones(t, t, dtype=torch.bool).tril()",
        "keep = torch.triu(torch.ones(t, t)).t() == 1",
        "keep = (torch.triu(torch.ones(t, t)) == 1).transpose(0, 1)",
        "keep = ~torch.ones(t, t, dtype=torch.bool).triu(1)",
        "keep = torch.arange(t)[None, :] <= torch.arange(t)[:, None]",
        "keep = torch.arange(t)[:, None] >= torch.arange(t)",
        "keep = torch.arange(t)[:, None] > torch.arange(t)[None, :] - 1",
        "keep = torch.ones(t, s, dtype=torch.bool).tril(s - t)",
        "keep = torch.ones(t, t + 1, dtype=torch.bool).tril(1)",
        "keep = torch.ones(t, t, dtype=torch.bool).tril(1)[1:, :t]",
        "keep = torch.ones(t, t, dtype=torch.bool).tril(window).triu(-window)",
        "keep = torch.ones(t, t).tril(1).bool()\nkeep[0, 1] = False",
        "keep = F.pad(torch.ones(t, t), (1, 0)).tril(1).bool()",
        "keep = torch.arange(past, past + t)[:, None] >= torch.arange(s)[None, :]",
        "keep = torch.full((t, t), float('-inf')).triu(1)",
        "keep = nn.Transformer.generate_square_subsequent_mask(t)",
    ],
)
def test_right_triangles_and_those_of_unknown_place_are_fine(keep: str) -> None:
    assert codes(forward(FUSED.format(keep))) == []


@pytest.mark.parametrize(
    "hide",
    [
        "hide = torch.triu(torch.ones(t, t), diagonal=1).bool()",
        "hide = torch.ones(t, t).triu(1 + past).bool()",
        "hide = torch.triu(torch.ones(t, t)).bool().fill_diagonal_(False)",
        "hide = torch.triu(torch.ones(t, t)).bool()\nhide.fill_diagonal_(False)",
        "hide = torch.from_numpy(np.triu(np.ones((1, t, t)), k=1).astype('uint8')) == 1",
    ],
)
def test_right_triangles_that_hide_are_fine(hide: str) -> None:
    assert codes(attention(then=MASKED.format(hide))) == []


def test_own_key_may_be_hidden_where_empty_rows_are_zeroed_after_the_softmax() -> None:
    body = (
        "scores = (q @ k.mT * self.scale).masked_fill(torch.ones(t, t).triu().bool(), -1e9)\n"
        "weights = scores.softmax(-1) * start_mask\nreturn weights @ v"
    )
    assert codes(forward(body)) == []


def test_triangle_is_blamed_where_it_is_drawn() -> None:
    source = attention(then=MASKED.format("hide = torch.triu(torch.ones(t, t)).bool()"))
    (finding,) = lint_source(source, "attention.py")
    assert finding.location.line == LINES_BEFORE + 2
    assert [(place.line, label) for place, label in finding.related] == [(LINES_BEFORE + 3, "used here")]


def test_buffer_with_a_shifted_triangle_is_found_where_it_is_used() -> None:
    source = attention(then="scores = scores.masked_fill(self.keep[:t, :t] == 0, -1e9)")
    assert codes(source.replace("torch.tril(torch.ones(64, 64))", "torch.tril(torch.ones(64, 64), 1)")) == ["ATN215"]


@pytest.mark.parametrize(
    "call",
    [
        "self.attn(x, x, x, attn_mask=torch.triu(torch.ones(t, t)).bool())[0]",
        "self.encoder(x, torch.triu(torch.full((t, t), float('-inf')), 2))",
        "self.encoder(x, mask=torch.ones(t, t, dtype=torch.bool).triu(0))",
    ],
)
def test_shifted_triangle_is_found_in_built_in_layers(call: str) -> None:
    assert codes(multihead(call)) == ["ATN215"]


@pytest.mark.parametrize(
    "call",
    [
        "self.attn(x, x, x, attn_mask=torch.triu(torch.ones(t, t), 1))[0]",
        "self.attn(x, x, x, key_padding_mask=(ids == self.pad_id).float())[0]",
        "self.attn(x, x, x, key_padding_mask=(ids != self.pad_id).to(torch.float32))[0]",
        "self.encoder(x, src_key_padding_mask=(ids == self.pad_id).to(x.dtype))",
        "self.encoder(x, torch.tril(torch.ones(t, t)))",
        "self.attn(x, x, x, attn_mask=1 - attention_mask.float())[0]",
        "self.attn(x, x, x, key_padding_mask=1.0 - attention_mask.to(torch.float32))[0]",
    ],
)
def test_flags_as_numbers_are_found_in_built_in_layers(call: str) -> None:
    source = multihead(call).replace("t = x.size(1)", "x = self.attn.out_proj(x)\n        t = x.size(1)")
    assert codes(source) == ["ATN206"]


@pytest.mark.parametrize(
    "then",
    [
        "scores = scores + (ids != pad_id)[:, None, None, :]",
        "scores = scores + torch.tril(torch.ones(t, t))",
        "scores += mask.bool()",
        "scores = scores + (mask == 0).float()",
        "scores = scores + (1.0 - mask)",
        "mask = torch.ones_like(mask) - mask\nscores += mask[:, None, None]",
        "scores = scores + (torch.arange(t)[None, :] < lengths[:, None])[:, None, None, :].float()",
    ],
)
def test_flags_added_to_the_scores_are_found(then: str) -> None:
    assert codes(attention(then=then)) == ["ATN206"]


@pytest.mark.parametrize(
    "then",
    [
        "scores = scores + mask",
        "scores = scores + (1.0 - mask.float()) * -1e9",
        "scores = scores + (ids == pad_id)[:, None, None, :] * -1e9",
        "scores = scores + torch.triu(torch.ones(t, t), 1) * float('-inf')",
        "scores = scores - 1e9 * (ids == pad_id)[:, None, None, :].float()",
        "scores = scores + mask.float().masked_fill(mask == 0, float('-inf')).masked_fill(mask == 1, 0.0)",
        "scores = scores + torch.zeros(t, t).masked_fill(ids == pad_id, -1e9)",
        "hide = torch.zeros(t, t)\nhide[(ids == pad_id)] = float('-inf')\nscores = scores + hide",
        "scores = scores + (mask - 1.0) * 1e9",
        "mask = 1 - mask\nmask = mask.masked_fill(mask.bool(), -1e9)\nscores = scores + mask",
        "mask = 1.0 - mask.float()\nmask *= -1e4\nscores = scores + mask",
        "mask = 1.0 - mask.float()\nmask[mask == 1] = float('-inf')\nscores = scores + mask",
        "scores = scores + torch.log(1 - mask)",
        "scores = scores * (1 - mask) + mask * -1e9",
    ],
)
def test_masks_that_hold_what_hides_may_be_added(then: str) -> None:
    assert "ATN206" not in codes(attention(then=then))


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("scores = scores + torch.ones(t, t).tril() * -1e9", ["ATN205"]),
        ("hide = (ids != pad_id)[:, None, None].float() * -1e9\nscores = scores + hide", ["ATN205"]),
        ("scores = scores - torch.ones(t, t).tril() * -1e9", []),
        ("scores = scores + (torch.ones(t, t).tril() - 1) * 1e9", []),
        ("scores = scores + mask * -1e9", []),
    ],
)
def test_fill_on_the_keys_that_a_mask_keeps_is_found(then: str, expected: list[str]) -> None:
    assert codes(attention(then=then)) == expected


@pytest.mark.parametrize("keep", ["keep = torch.ones(t, t).tril()", "keep = (ids != pad_id)[:, None, None].float()"])
def test_float_flags_are_found_in_fused_attention(keep: str) -> None:
    assert codes(forward(FUSED.format(keep))) == ["ATN206"]
