"""Masks that are joined, copied, of too few axes, read in two ways, or out of the range of their dtype."""

from __future__ import annotations

import pytest

from attn_guard.findings import Severity
from attn_guard.lint.run import lint_source
from tests.lint.sources import attention, forward
from tests.lint.test_masks import codes, multihead

FUTURE = "future = torch.ones(t, t, dtype=torch.bool).triu(1)\n"
PAST = "past = torch.ones(t, t, dtype=torch.bool).tril()\n"
PAD = "pad = (ids == pad_id)[:, None, None]\n"
HIDE = "\nscores = scores.masked_fill(hide, torch.finfo(scores.dtype).min)"
KEEP = "\nscores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)"


@pytest.mark.parametrize(
    "then",
    [
        FUTURE + PAD + "hide = future & pad" + HIDE,
        FUTURE + PAD + "hide = torch.logical_and(pad, future)" + HIDE,
        FUTURE + PAD + "hide = pad.float() * future.float()\nhide = hide.bool()" + HIDE,
        PAST + PAD + "keep = past | ~pad" + KEEP,
        PAST + PAD + "keep = torch.logical_or(past, pad.logical_not())" + KEEP,
        FUTURE + "hide = future & torch.ones(t, t, dtype=torch.bool).tril(-8)" + HIDE,
        FUTURE + PAD + "hide = future\nhide &= pad" + HIDE,
    ],
)
def test_masks_of_which_one_loses_are_found(then: str) -> None:
    assert codes(attention(then=then)) == ["ATN221"]


@pytest.mark.parametrize(
    "then",
    [
        FUTURE + PAD + "hide = future | pad" + HIDE,
        PAST + PAD + "keep = past & ~pad" + KEEP,
        PAST + PAD + "keep = ~(~past | pad)" + KEEP,
        FUTURE + "hide = future & ~prefix" + HIDE,
        PAST + "keep = past | prefix_mask" + KEEP,
        PAST + "keep = past | (torch.arange(t)[None, :] < prefix_lengths[:, None])" + KEEP,
        PAST + "keep = past & torch.ones(t, t, dtype=torch.bool).triu(-8)" + KEEP,
        FUTURE + "hide = future | torch.ones(t, t, dtype=torch.bool).tril(-8)" + HIDE,
        PAD + "hide = pad & pad.mT" + HIDE,
        FUTURE + PAD + "both = future & pad\nhide = future | pad" + HIDE,
        FUTURE + PAD + "hide = torch.logical_or(future, pad)" + HIDE,
    ],
)
def test_masks_that_are_joined_as_they_should_or_unknown_are_fine(then: str) -> None:
    assert codes(attention(then=then)) == []


@pytest.mark.parametrize(
    "then",
    [
        "scores = scores.masked_fill(key_padding_mask, -1e9)",
        "scores = scores.masked_fill(key_padding_mask[:, None, :].bool(), -1e9)",
        "scores = scores.masked_fill(key_padding_mask.unsqueeze(1), -1e9)",
        "mask = F.pad(mask.flatten(1), (1, 0), value=True)\n"
        "mask = mask[:, None, :] * mask[:, :, None]\nscores = scores.masked_fill(~mask, -1e9)",
        "n, s = ids.shape\nscores = scores.masked_fill((ids == pad_id)[:, None], -1e9)",
        "keep = torch.arange(t)[None, :] < lengths[:, None]\nscores = scores.masked_fill(~keep, -1e9)",
    ],
)
def test_mask_of_too_few_axes_is_found(then: str) -> None:
    source = attention(then=then).replace("mask=None)", "mask=None, key_padding_mask=None)")
    (finding,) = lint_source(source, "attention.py")
    assert (finding.code, finding.severity) == ("ATN207", Severity.WARNING)


@pytest.mark.parametrize(
    "then",
    [
        "scores = scores.masked_fill(key_padding_mask[:, None, None, :], -1e9)",
        "scores = scores.masked_fill(key_padding_mask.unsqueeze(1).unsqueeze(2), -1e9)",
        "scores = scores.masked_fill(key_padding_mask.view(b, 1, 1, t), -1e9)",
        "hide = rearrange(key_padding_mask, 'b t -> b 1 1 t')\nscores = scores.masked_fill(hide, -1e9)",
        "scores = scores.masked_fill(mask, -1e9)",
        "scores = scores.masked_fill(mask[None], -1e9)",
        "scores = scores.masked_fill((ids == pad_id), -1e9)",
        "scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), -1e9)",
        "keep = torch.arange(t)[None, :] < lengths[:, None]\nscores = scores.masked_fill(~keep[:, None, None], -1e9)",
    ],
)
def test_mask_of_as_many_axes_or_of_unknown_ones_is_fine(then: str) -> None:
    source = attention(then=then).replace("mask=None)", "mask=None, key_padding_mask=None)")
    assert "ATN207" not in codes(source)


def test_scores_with_the_heads_first_are_fine() -> None:
    body = """
    q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
    scores = (q @ k.mT * self.scale).masked_fill(key_padding_mask.unsqueeze(1), -1e9)
    return scores.softmax(-1) @ v
    """
    assert codes(forward(body).replace("mask=None)", "key_padding_mask=None)")) == []


def test_helper_that_is_given_a_mask_with_all_axes_is_fine() -> None:
    source = attention(then="scores = self.hide(scores, key_padding_mask[:, None, None])")
    helper = (
        "    def hide(self, scores, key_padding_mask):\n        scores = scores.masked_fill(key_padding_mask, -1e9)\n"
    )
    helper += "        return scores\n\n    def forward"
    source = source.replace("    def forward", helper).replace("mask=None)", "key_padding_mask=None)")
    assert codes(source) == []


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("self.attn(x, x, x, attn_mask=key_padding_mask)[0]", ["ATN207"]),
        ("self.encoder(x, key_padding_mask)", ["ATN207"]),
        ("self.attn(x, x, x, key_padding_mask=key_padding_mask)[0]", []),
        ("self.encoder(x, None, key_padding_mask)", []),
    ],
)
def test_padding_mask_in_the_place_of_a_mask_of_pairs_is_found(call: str, expected: list[str]) -> None:
    assert codes(multihead(call).replace("attention_mask=None", "key_padding_mask=None")) == expected


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("attention_mask.repeat(self.heads, 1, 1)", ["ATN208"]),
        ("attention_mask[:, None, :].expand(-1, t, -1).repeat(self.attn.num_heads, 1, 1)", ["ATN208"]),
        ("attention_mask.repeat_interleave(self.heads, dim=0)", []),
        ("attention_mask.repeat(1, self.heads, 1)", []),
        ("torch.ones(t, t).triu(1).bool().repeat(self.heads, 1, 1)", []),
        ("attention_mask.repeat(x.size(0), 1, 1)", []),
    ],
)
def test_mask_that_is_copied_head_by_head_for_the_built_in_layer_is_found(mask: str, expected: list[str]) -> None:
    assert codes(multihead(f"self.attn(x, x, x, attn_mask={mask})[0]")) == expected


def test_copies_in_the_wrong_order_are_blamed_where_they_are_made() -> None:
    copied = "t = x.size(1)\n        pairs = attention_mask.repeat(self.heads, 1, 1)"
    source = multihead("self.attn(x, x, x, attn_mask=pairs)[0]").replace("t = x.size(1)", copied)
    (finding,) = lint_source(source, "attention.py")
    lines = source.splitlines()
    assert "repeat" in lines[finding.location.line - 1]
    assert [lines[place.line - 1].strip()[:6] for place, _ in finding.related] == ["return"]


def test_argument_that_is_read_in_two_ways_is_found() -> None:
    body = """
    hide = attention_mask == 0
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=hide)
    if self.plots:
        weights = (q @ k.mT * self.scale).masked_fill(hide, -1e9).softmax(-1)
        return weights @ v
    return y
    """
    source = forward(body).replace("mask=None", "attention_mask=None")
    (finding,) = lint_source(source, "attention.py")
    assert finding.code == "ATN205"
    assert finding.related


@pytest.mark.parametrize(
    "body",
    [
        "y = F.scaled_dot_product_attention(q, k, v, attn_mask=~hide)\n"
        "return y + (q @ k.mT * self.scale).masked_fill(hide, -1e9).softmax(-1) @ v",
        "if self.inverted:\n    return F.scaled_dot_product_attention(q, k, v, attn_mask=hide)\n"
        "return (q @ k.mT * self.scale).masked_fill(hide, -1e9).softmax(-1) @ v",
    ],
)
def test_argument_that_is_read_in_one_way_or_by_choice_is_fine(body: str) -> None:
    source = forward("hide = attention_mask == 0\n" + body).replace("mask=None", "attention_mask=None")
    assert "ATN205" not in codes(source)


def test_sum_of_two_lowest_masks_is_found() -> None:
    then = (
        "low = torch.finfo(scores.dtype).min\nfuture = torch.full((t, t), low).triu(1)\n"
        "pad = torch.zeros(b, 1, 1, t).masked_fill((ids == pad_id)[:, None, None], low)\n"
        "scores = scores + (future + pad)"
    )
    assert codes(attention(then=then)) == ["ATN204"]


@pytest.mark.parametrize(
    ("fill", "built", "expected"),
    [
        ("-1e9", ".half()", ["ATN204"]),
        ("-1e9", ".to(torch.float16)", ["ATN204"]),
        ("-1e9", "", []),
        ("-6e4", ".half()", []),
        ("float('-inf')", ".half()", []),
        ("torch.finfo(scores.dtype).min", ".half()", []),
        ("-1e9", ".to(torch.bfloat16)", []),
    ],
)
def test_fill_out_of_the_range_of_float16_is_found_where_the_file_asks_for_it(
    fill: str, built: str, expected: list[str]
) -> None:
    source = attention(then=f"scores = scores.masked_fill(mask == 0, {fill})")
    assert codes(f"{source}\n\ndef build():\n    return Attention(64, 8){built}\n") == expected


def preview(source: str) -> list[str]:
    return [finding.code for finding in lint_source(source, "attention.py", preview=True)]


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("hide = future | pad\nscores = scores.masked_fill(hide, float('-inf'))", ["ATN211"]),
        ("hide = future | pad\nscores = scores.masked_fill(hide, -torch.inf)", ["ATN211"]),
        ("hide = future | pad\nscores = scores.masked_fill(hide, -1e9)", []),
        ("scores = scores.masked_fill(future, float('-inf'))", []),
        ("hide = future | pad\nscores = torch.nan_to_num(scores.masked_fill(hide, -torch.inf))", []),
    ],
)
def test_rows_that_may_be_empty_are_told_in_preview(then: str, expected: list[str]) -> None:
    assert preview(attention(then=FUTURE + PAD + then)) == expected


@pytest.mark.parametrize(
    ("fill", "expected"), [("-3e4", ["ATN223"]), ("-1e9", []), ("float('-inf')", []), ("torch.finfo(q.dtype).min", [])]
)
def test_mask_before_the_scale_is_told_in_preview(fill: str, expected: list[str]) -> None:
    source = attention("(q @ k.mT).masked_fill(mask == 0, " + fill + ") * self.scale")
    assert preview(source) == expected
