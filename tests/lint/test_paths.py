"""Causal masks beside a cache, and masks that one path through a function loses."""

from __future__ import annotations

import textwrap

import pytest

from tests.lint.sources import forward
from tests.lint.test_masks import codes

GROWN = "if past is not None:\n    k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)\n"


def cached(body: str, grown: str = GROWN) -> str:
    return forward(grown + body).replace("mask=None", "mask=None, past=None")


@pytest.mark.parametrize(
    "body",
    [
        "return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        "return F.scaled_dot_product_attention(q, k, v, None, 0.0, True)",
        "keep = torch.ones(t, k.size(2), dtype=torch.bool).tril()\n"
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=keep)",
        "scores = (q @ k.mT * self.scale).masked_fill(self.keep[:t, :k.size(2)] == 0, -1e9)\n"
        "return scores.softmax(-1) @ v",
    ],
)
@pytest.mark.parametrize(
    "grown",
    [
        GROWN,
        "k = torch.cat((past[0], k), 2) if past is not None else k\n",
        "past_k, past_v = past\nk, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)\n",
    ],
)
def test_triangle_from_the_top_left_beside_a_cache_is_found(grown: str, body: str) -> None:
    assert codes(cached(body, grown)) == ["ATN216"]


@pytest.mark.parametrize(
    "body",
    [
        "return F.scaled_dot_product_attention(q, k, v, is_causal=past is None)",
        "return F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)",
        "if past is None:\n    return F.scaled_dot_product_attention(q, k, v, is_causal=True)\n"
        "return F.scaled_dot_product_attention(q, k, v)",
        "if t > 1:\n    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n"
        "else:\n    y = F.scaled_dot_product_attention(q, k, v)\nreturn y",
        "return F.scaled_dot_product_attention(q, k, v, is_causal=True if past is None else False)",
        "s = k.size(2)\nkeep = torch.ones(t, s, dtype=torch.bool).tril(s - t)\n"
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=keep)",
        "s = k.size(2)\nreturn (q @ k.mT * self.scale).masked_fill(self.keep[s - t:s, :s] == 0, -1e9).softmax(-1) @ v",
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)",
    ],
)
def test_triangle_that_is_aligned_or_not_used_with_a_cache_is_fine(body: str) -> None:
    assert codes(cached(body)) == []


def test_branch_without_a_cache_may_be_causal() -> None:
    body = (
        "if past is not None:\n    k = torch.cat([past[0], k], 2)\n"
        "    return F.scaled_dot_product_attention(q, k, v)\n"
        "return F.scaled_dot_product_attention(q, k, v, is_causal=True)"
    )
    assert codes(cached(body, "")) == []


SWITCHED = """
if {switch}:
    weights = {plain}.softmax(dim=-1)
    y = weights @ v
else:
    y = F.scaled_dot_product_attention(q, k, v, {fused})
return y
"""
PLAIN, MASKED = "(q @ k.mT * self.scale)", "(q @ k.mT * self.scale).masked_fill(mask == 0, -1e9)"


@pytest.mark.parametrize("switch", ["need_weights", "output_attentions", "not self.flash", "return_attn"])
@pytest.mark.parametrize("fused", ["attn_mask=mask", "is_causal=True"])
def test_path_without_the_mask_is_found(switch: str, fused: str) -> None:
    assert codes(forward(SWITCHED.format(switch=switch, plain=PLAIN, fused=fused))) == ["ATN209"]


def test_fused_path_without_the_mask_is_found() -> None:
    source = forward(SWITCHED.format(switch="not self.flash", plain=MASKED, fused="dropout_p=0.0"))
    assert codes(source) == ["ATN209"]


def test_path_after_an_early_return_is_found() -> None:
    body = (
        "if self.use_sdpa:\n    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)\n"
        f"return {PLAIN}.softmax(-1) @ v"
    )
    assert codes(forward(body)) == ["ATN209"]


@pytest.mark.parametrize(
    ("switch", "plain", "fused"),
    [
        ("need_weights", MASKED, "attn_mask=mask"),
        ("need_weights", PLAIN, "dropout_p=0.0"),
        ("mask is None", PLAIN, "attn_mask=mask"),
        ("self.flash and mask is None", PLAIN, "attn_mask=mask"),
        ("FLASH_INSTALLED and x is None", PLAIN, "attn_mask=mask"),
        ("not self.causal", PLAIN, "is_causal=True"),
        ("t == 1", PLAIN, "is_causal=True"),
        ("is_cross_attention", PLAIN, "attn_mask=mask"),
        ("self.mode", PLAIN, "attn_mask=mask"),
        ("need_weights", "hide(q @ k.mT * self.scale)", "attn_mask=mask"),
        ("need_weights", "(q @ k.mT * self.scale + self.bias)", "attn_mask=mask"),
    ],
)
def test_paths_that_differ_for_a_reason_or_not_at_all_are_fine(switch: str, plain: str, fused: str) -> None:
    assert codes(forward(SWITCHED.format(switch=switch, plain=plain, fused=fused))) == []


def test_path_for_the_case_that_there_is_no_mask_is_fine() -> None:
    """Behind the switch, the mask itself chooses once more; where it is there, the other call is given it."""
    body = f"""
    if need_weights:
        weights = {MASKED}.softmax(dim=-1)
        y = weights @ v
    elif keep is None:
        y = F.scaled_dot_product_attention(q, k, v)
    else:
        y = F.scaled_dot_product_attention(q, k, v, keep)
    return y
    """
    asked = "keep_mask = x.unsqueeze(-1) == x.unsqueeze(-2) if x is not None else None\n"
    assert codes(forward(asked + textwrap.dedent(body).replace("keep is", "keep_mask is"))) == []


def test_path_that_is_sure_to_have_a_mask_is_found() -> None:
    body = SWITCHED.format(switch="self.flash", plain=PLAIN, fused="attn_mask=mask")
    assert codes(forward("if mask is None:\n    raise ValueError\n" + body)) == ["ATN209"]


def test_path_behind_a_module_of_its_own_name_is_found() -> None:
    body = SWITCHED.format(switch="self.x is not None and self.flash", plain=PLAIN, fused="attn_mask=mask")
    assert codes(forward(body)) == ["ATN209"]


def test_path_behind_an_optional_module_is_found() -> None:
    body = SWITCHED.format(switch="xformers is not None", plain=PLAIN, fused="attn_mask=mask")
    assert codes(forward(body)) == ["ATN209"]


JOINED = "{}\nscores = q @ k.mT * self.scale\nif mask is not None:\n    scores = scores.masked_fill(~mask, -1e9)\n"
JOINED += "return scores.softmax(-1) @ v"


@pytest.mark.parametrize(
    "joined",
    [
        "causal = torch.ones(t, t, dtype=torch.bool).tril()\nif mask is not None:\n    mask = mask & causal",
        "if mask is not None:\n    mask = torch.logical_and(mask, self.causal_mask[:t, :t])",
        "self.causal_mask = self.causal_mask.to(q.dtype)\nif self.causal_mask is not None:\n"
        "    if mask is not None:\n        mask = self.causal_mask + mask",
        "if mask is not None:\n    mask &= self.causal_mask",
    ],
)
def test_own_mask_that_only_a_given_mask_brings_in_is_found(joined: str) -> None:
    assert codes(forward(JOINED.format(joined))) == ["ATN209"]


@pytest.mark.parametrize(
    "joined",
    [
        "if mask is not None:\n    mask = mask & self.causal_mask\nelse:\n    mask = self.causal_mask",
        "causal = self.causal_mask\nif mask is not None:\n    causal = causal & mask\nmask = causal",
        "if mask is None:\n    mask = self.causal_mask\nif mask is not None:\n    mask = mask & self.causal_mask",
        "if mask is not None:\n    mask = mask[:, None, None].bool()",
        "if mask is not None:\n    mask = mask & self.window",
        "if mask is not None:\n    mask = invert_mask(mask)",
        "if mask is not None:\n    prompt_mask = torch.zeros(b, 1, t)\n    mask = torch.cat([prompt_mask, mask], 1)",
        "if mask is not None:\n    mask = self.expand_mask(mask, kind=self.mask_kind(t)).to_mask(t)",
    ],
)
def test_own_mask_that_is_used_without_a_given_one_is_fine(joined: str) -> None:
    assert codes(forward(JOINED.format(joined))) == []
