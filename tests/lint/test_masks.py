"""Masks: where they sit, what they fill with, whether their result is kept, and what True means in them."""

from __future__ import annotations

import pytest

from attn_guard.anatomy import StepKind
from attn_guard.findings import Severity
from attn_guard.lint.judge import sites_of
from attn_guard.lint.run import lint_source
from tests.lint.sources import HEAD, attention, forward


def codes(source: str) -> list[str]:
    return [finding.code for finding in lint_source(source, "attention.py")]


def fills_of(source: str) -> list[float | None]:
    (site,) = sites_of(source)
    return [step.fill for step in site.before_softmax(StepKind.MASK)]


@pytest.mark.parametrize(
    ("then", "fill"),
    [
        ('scores = scores.masked_fill(mask == 0, float("-inf"))', float("-inf")),
        ("scores = scores.masked_fill(~mask, -1e9)", -1e9),
        ("scores.masked_fill_(mask == 0, -math.inf)", float("-inf")),
        ("if mask is not None:\n    scores = scores.masked_fill(mask == 0, -1e9)", -1e9),
        ("scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)", -3.4028234663852886e38),
        ("scores = torch.where(mask, scores, torch.full_like(scores, -1e9))", -1e9),
        ("scores = scores + (1.0 - mask) * -1e9", -1e9),
        ("scores += (1.0 - mask[:, None, None, :].float()) * -10000.0 * 10", -1e5),
        ("scores = scores * mask + (1 - mask) * -1e9", -1e9),
        ("scores = scores.masked_fill(self.keep[:t, :t] == 0, -torch.inf)", float("-inf")),
        ("scores[~mask] = -1e9", -1e9),
        ("scores = scores + torch.triu(torch.full((t, t), -1e9), diagonal=1)", -1e9),
        ("scores = scores + mask", None),
    ],
)
def test_mask_on_the_scores_is_seen_with_its_fill(then: str, fill: float | None) -> None:
    assert fills_of(attention(then=then)) == [pytest.approx(fill) if fill else fill]
    assert codes(attention(then=then)) == []


@pytest.mark.parametrize(
    "then",
    [
        "scores = scores.masked_fill(mask == 0, 1e-9)",
        "scores = scores.masked_fill(mask == 0, 0)",
        "scores = scores.masked_fill(mask == 0, -1e-12)",
        "scores = scores.masked_fill(mask == 0, -10.0)",
        "scores = scores.masked_fill(mask == 0, float('inf'))",
        "scores = scores * mask",
        "scores = torch.where(mask, scores, torch.zeros_like(scores))",
        "scores = torch.tril(scores)",
        "scores[~mask] = 0",
    ],
)
def test_weak_fill_is_found(then: str) -> None:
    assert codes(attention(then=then)) == ["ATN203"]


def test_weak_fill_given_as_a_default_is_found() -> None:
    source = attention(then="scores = scores.masked_fill(mask == 0, -eps)").replace(
        "mask=None)", "mask=None, eps=1e-12)"
    )
    assert codes(source) == ["ATN203"]


def test_fill_that_one_caller_of_several_is_known_to_bring_is_seen() -> None:
    calls = "    def {}(self, x, mask):\n        return self.forward(x, {})\n"
    source = attention(then="scores = scores + mask").replace("def forward", "def attend")
    calls = calls.replace("self.forward", "self.attend")
    source += (
        calls.format("forward", "mask") + calls.format("two", "(1.0 - mask) * -10.0") + calls.format("six", "mask")
    )
    assert codes(source) == ["ATN203"]


def test_fill_of_minus_ten_thousand_is_information_only() -> None:
    (finding,) = lint_source(attention(then="scores = scores.masked_fill(mask == 0, -1e4)"), "attention.py")
    assert (finding.code, finding.severity) == ("ATN203", Severity.INFO)


def test_low_number_in_similarities_that_meet_no_value_is_fine() -> None:
    source = "import torch\nimport torch.nn.functional as F\ndef loss(q, k, same):\n    s = q @ k.T\n"
    source += "    s.masked_fill_(same, -10.0)\n    return -F.softmax(s, -1).diagonal().log().mean()\n"
    assert codes(source) == []


LATE = """
weights = (q @ k.mT * self.scale).softmax(dim=-1)
{}
return weights @ v
"""


@pytest.mark.parametrize(
    "late",
    [
        "weights = weights.masked_fill(mask == 0, 0.0)",
        "weights = weights * mask",
        "weights.masked_fill_(~mask, 0)",
        "weights = torch.where(mask, weights, 0.0)",
        "if mask is not None:\n    weights = weights * mask",
        "weights[~mask] = 0",
    ],
)
def test_mask_after_the_softmax_is_found(late: str) -> None:
    assert codes(forward(LATE.format(late))) == ["ATN201"]


def test_mask_after_the_softmax_with_renormalised_rows_is_a_warning() -> None:
    late = "weights = weights * mask\nweights = weights / weights.sum(-1, keepdim=True)"
    (finding,) = lint_source(forward(LATE.format(late)), "attention.py")
    assert (finding.code, finding.severity) == ("ATN201", Severity.WARNING)


@pytest.mark.parametrize(
    "late",
    [
        "weights = self.drop(weights)",
        "weights = weights * head_mask",
        "weights = weights * self.gate(x)",
        "log(weights * mask)",
    ],
)
def test_what_is_no_mask_of_keys_after_the_softmax_is_left_alone(late: str) -> None:
    assert codes(forward(LATE.format(late))) == []


@pytest.mark.parametrize(
    "before",
    [
        "scores = scores.masked_fill(mask == 0, -1e9)",
        "scores = scores + bias",
        "scores = hide(scores, mask)",
        "if mask is not None:\n    scores = hide(scores)",
    ],
)
def test_zeroing_after_as_well_as_before_the_softmax_is_fine(before: str) -> None:
    body = f"scores = q @ k.mT * self.scale\n{before}\nweights = scores.softmax(-1) * mask\nreturn weights @ v"
    assert codes(forward(body)) == []


@pytest.mark.parametrize(
    "then",
    [
        "scores.masked_fill(mask == 0, -1e9)",
        "if mask is not None:\n    scores.masked_fill(mask == 0, float('-inf'))",
        "masked = scores.masked_fill(mask == 0, -1e9)",
        "torch.where(mask, scores, -1e9)",
    ],
)
def test_thrown_away_mask_is_found(then: str) -> None:
    assert codes(attention(then=then)) == ["ATN202"]


def test_scores_that_are_masked_in_place_after_the_softmax_are_found() -> None:
    late = "weights = scores.softmax(-1)\nscores.masked_fill_(mask == 0, -1e9)"
    body = f"scores = q @ k.mT * self.scale\n{late}\nreturn weights @ v"
    assert codes(forward(body)) == ["ATN202"]


def test_scores_of_one_helper_that_one_caller_alone_masks_are_no_late_mask() -> None:
    source = """
import math
import torch

def scored(q, k):
    return torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))

def at_once(q, k, v, mask):
    return torch.softmax(scored(q, k), dim=-1) @ v

def in_place(q, k, v, mask):
    scores = scored(q, k)
    scores.masked_fill_(~mask, float("-inf"))
    scores.sub_(scores.max(dim=-1, keepdim=True)[0])
    scores.exp_()
    scores.div_(scores.sum(dim=-1, keepdim=True))
    return scores @ v

def attention(q, k, v, mask):
    return at_once(q, k, v, mask) if q.size(-2) < 1024 else in_place(q, k, v, mask)
"""
    assert codes(source) == []


@pytest.mark.parametrize("cells", ["scores[:, :, 0, 0] = 1", "scores[0, i, j] = 2.0", "scores[..., -1] = 0"])
def test_cells_that_are_given_a_score_are_not_hidden(cells: str) -> None:
    assert codes(attention(then=cells)) == []


def test_mask_that_is_written_into_the_scores_is_not_thrown_away() -> None:
    body = (
        "scores = q @ k.mT * self.scale\n"
        "torch.where(self.keep[:t, :t] == 1, scores, torch.tensor(-1e9), out=scores)\n"
        "return scores.softmax(-1) @ v"
    )
    assert codes(forward(body)) == []
    assert codes(forward(body.replace(", out=scores", ""))) == ["ATN202"]
    assert codes(forward(body.replace("out=scores", "out=None"))) == ["ATN202"]


def test_result_that_is_written_into_a_name_is_known_by_it() -> None:
    body = "scores = torch.empty(1)\ntorch.matmul(q, k.mT, out=scores)\nreturn scores.softmax(-1) @ v"
    assert codes(forward(body)) == ["ATN101"]


def test_thrown_away_mask_of_something_untraced_is_found() -> None:
    source = "import torch\ndef f(s, m, v):\n    s.masked_fill(m, float('-inf'))\n    return torch.softmax(s, -1) @ v\n"
    assert codes(source) == ["ATN202"]


def test_masked_copy_that_is_read_later_is_fine() -> None:
    body = "scores = q @ k.mT * self.scale\nmasked = scores.masked_fill(mask == 0, -1e9)\nreturn masked.softmax(-1) @ v"
    assert codes(forward(body)) == []


FUSED = "{}\nreturn F.scaled_dot_product_attention(q, k, v, attn_mask=m)"


@pytest.mark.parametrize(
    "m",
    [
        "m = torch.triu(torch.ones(t, t), diagonal=1).bool()",
        "m = torch.ones(t, t, dtype=torch.bool).triu(1)",
        "m = (ids == self.pad_id)[:, None, None, :]",
        "m = ids.eq(pad_token_id).unsqueeze(1)",
        "m = ~torch.tril(torch.ones(t, t, dtype=torch.bool))",
        "m = self.keep[:t, :t] == 0",
    ],
)
def test_mask_that_says_blocked_is_upside_down_in_fused_attention(m: str) -> None:
    assert codes(forward(FUSED.format(m))) == ["ATN205"]


@pytest.mark.parametrize(
    "m",
    [
        "m = ~torch.triu(torch.ones(t, t), diagonal=1).bool()",
        "m = torch.ones(t, t, dtype=torch.bool).tril()",
        "m = (ids != self.pad_id)[:, None, None, :]",
        "m = torch.logical_not(ids == pad_id)",
        "m = self.keep[:t, :t].bool()",
        "m = torch.triu(torch.full((t, t), float('-inf')), diagonal=1)",
        "m = mask",
        "m = mask == 0",
        "m = (ids == pad_id) == 0",
        "m = torch.triu(torch.ones(t, t), diagonal=1).bool()\nif self.flip:\n    m = ~m",
        "m = torch.zeros(t, t).masked_fill(torch.triu(torch.ones(t, t), 1).bool(), float('-inf'))",
        "m = build_mask(t)",
    ],
)
def test_mask_that_says_attend_or_that_is_unknown_is_fine_in_fused_attention(m: str) -> None:
    assert codes(forward(FUSED.format(m))) == []


def multihead(call: str) -> str:
    return f"""
import torch
import torch.nn as nn
class Block(nn.Module):
    def __init__(self, d, h, pad_id):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, h), 2)
        self.pad_id = pad_id
    def forward(self, x, ids, batch, attention_mask=None):
        t = x.size(1)
        return {call}
"""


@pytest.mark.parametrize(
    "call",
    [
        "self.attn(x, x, x, key_padding_mask=ids != self.pad_id)[0]",
        "self.attn(x, x, x, attn_mask=torch.tril(torch.ones(t, t)).bool())[0]",
        "self.attn(x, x, x, key_padding_mask=batch['attention_mask'].bool())[0]",
        "self.encoder(x, src_key_padding_mask=ids.ne(self.pad_id))",
    ],
)
def test_mask_that_says_attend_is_upside_down_in_built_in_layers(call: str) -> None:
    assert codes(multihead(call)) == ["ATN205"]


def test_mask_of_queries_and_keys_may_come_under_the_name_of_a_padding_mask() -> None:
    assert codes(multihead("self.encoder(x, mask=batch['attention_mask'])")) == []


@pytest.mark.parametrize(
    "call",
    [
        "self.attn(x, x, x, key_padding_mask=ids == self.pad_id)[0]",
        "self.attn(x, x, x, key_padding_mask=~batch['attention_mask'].bool())[0]",
        "self.attn(x, x, x, key_padding_mask=batch['attention_mask'] == 0)[0]",
        "self.attn(x, x, x, attn_mask=torch.triu(torch.ones(t, t), 1).bool())[0]",
        "self.attn(x, x, x, key_padding_mask=attention_mask)[0]",
        "self.encoder(x, src_key_padding_mask=~(ids != self.pad_id))",
        "self.attn(x, x, x)[0]",
    ],
)
def test_mask_that_says_ignore_is_fine_in_built_in_layers(call: str) -> None:
    assert codes(multihead(call)) == []


def test_scores_filled_where_the_mask_keeps_are_found() -> None:
    then = "scores = scores.masked_fill(torch.tril(torch.ones(t, t)).bool(), float('-inf'))"
    assert codes(attention(then=then)) == ["ATN205"]


def test_padding_mask_that_nobody_reads_is_found() -> None:
    source = attention().replace("mask=None)", "key_padding_mask=None)")
    assert codes(source) == ["ATN212"]


def test_unread_mask_is_an_error_only_where_the_class_declares_it() -> None:
    source = attention().replace("mask=None)", "key_padding_mask=None)")
    declared = source.replace("class Attention", "@contract(masks={'key_padding_mask': 'ignore'})\nclass Attention")
    assert [f.severity for f in lint_source(source, "a.py")] == [Severity.WARNING]
    assert [f.severity for f in lint_source(declared, "a.py")] == [Severity.ERROR]


STACKED = """

class Decoder(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.layers = nn.TransformerDecoder({layer}(d_model, 8), num_layers=2)

    def forward(self, x, memory, padding):
        return self.layers(x, memory{given})
"""


@pytest.mark.parametrize(
    ("layer", "read", "given", "expected"),
    [
        ("Attention", "", "", []),
        ("Attention", "", ", memory_key_padding_mask=padding", ["ATN212"]),
        ("Attention", "x = self.embed(x, tgt_mask)", "", ["ATN212"]),
        ("Another", "", "", ["ATN212"]),
    ],
)
def test_layer_of_a_stack_may_leave_all_its_masks_unread(
    layer: str, read: str, given: str, expected: list[str]
) -> None:
    masks = "tgt_mask=None, memory_mask=None, memory_key_padding_mask: Optional[torch.Tensor] = None)"
    source = attention(then=read).replace("mask=None)", masks)
    assert codes(source + STACKED.format(layer=layer, given=given)) == expected


def test_unread_padding_mask_of_the_targets_is_fine() -> None:
    assert codes(attention().replace("mask=None)", "tgt_key_padding_mask=None)")) == []


@pytest.mark.parametrize(
    "use", ["del key_padding_mask", "x = self.embed(x, key_padding_mask)", "print(key_padding_mask)"]
)
def test_padding_mask_that_is_read_or_deleted_is_fine(use: str) -> None:
    source = attention(then=use).replace("mask=None)", "key_padding_mask=None)")
    assert codes(source) == []


def causal(source: str) -> str:
    return source.replace("class Attention", "class CausalAttention")


def test_causal_class_without_any_mask_is_found() -> None:
    source = causal(attention()).replace(", mask=None)", ")")
    (finding,) = lint_source(source, "attention.py")
    assert (finding.code, finding.severity) == ("ATN214", Severity.WARNING)


def test_declared_causal_class_without_any_mask_is_an_error() -> None:
    source = (
        attention().replace(", mask=None)", ")").replace("class Attention", "@contract(causal=True)\nclass Attention")
    )
    (finding,) = lint_source(source, "attention.py")
    assert (finding.code, finding.severity) == ("ATN214", Severity.ERROR)


@pytest.mark.parametrize(
    "body",
    [
        "return F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=self.keep[:t, :t].bool())",
        "return (q @ k.mT * self.scale + self.bias).softmax(-1) @ v",
        "return hide(q @ k.mT * self.scale).softmax(-1) @ v",
        "return (q @ k.mT * self.scale).masked_fill(self.keep[:t, :t] == 0, -1e9).softmax(-1) @ v",
    ],
)
def test_causal_class_with_any_sign_of_a_mask_is_fine(body: str) -> None:
    assert codes(causal(forward(body)).replace(", mask=None)", ")")) == []


@pytest.mark.parametrize(
    "name", ["NonCausalAttention", "NotCausalAttention", "Non_CausalAttention", "AcausalAttention"]
)
def test_class_that_says_not_causal_is_no_causal_class(name: str) -> None:
    source = attention().replace(", mask=None)", ")")
    assert codes(source.replace("class Attention", "class CausalAttention")) == ["ATN214"]
    assert codes(source.replace("class Attention", f"class {name}")) == []


@pytest.mark.parametrize(
    "held", ["self.causal_rules = rules", "self.effects = causal_effects(heads)", "self.draw = Counterfactuals(heads)"]
)
def test_class_of_causes_and_effects_is_no_causal_class(held: str) -> None:
    source = causal(attention()).replace(", mask=None)", ")")
    assert codes(source) == ["ATN214"]
    assert codes(source.replace("self.scale =", f"{held}\n        self.scale =")) == []


FRAMES = """\
import torch
from torch import nn
from layers import CausalConv3d, to_frames


class CausalAttention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.q, self.k, self.v = (CausalConv3d(channels, channels, 1) for _ in range(3))

    def forward(self, x):
        q, k, v = to_frames(self.q(x)), to_frames(self.k(x)), to_frames(self.v(x))
        b, c, SIZES = q.shape
        q, k, v = q.reshape(b, c, JOINED).permute(0, 2, 1), k.reshape(b, c, JOINED), v.reshape(b, c, JOINED)
        weights = PRODUCT.mul(c ** -0.5).softmax(dim=2)
        return x + torch.bmm(v, weights.permute(0, 2, 1)).reshape(b, c, SIZES)
"""


@pytest.mark.parametrize("product", ["torch.bmm(q, k)", "(q @ k)", "torch.einsum('bqc,bck->bqk', q, k)"])
@pytest.mark.parametrize(
    ("sizes", "joined", "found"),
    [
        ("h, w", "h * w", []),
        ("height, width", "height * width", []),
        ("t, h, w", "t * h * w", ["ATN214"]),
        ("t, n", "t * n", ["ATN214"]),
        ("t", "t", ["ATN214"]),
    ],
)
def test_pixels_of_one_frame_are_in_no_order(product: str, sizes: str, joined: str, found: list[str]) -> None:
    source = FRAMES.replace("SIZES", sizes).replace("JOINED", joined).replace("PRODUCT", product)
    assert codes(source) == found


PADDED = """\
scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * self.scale
MASKING
return scores.softmax(dim=-1) @ v
"""


@pytest.mark.parametrize(
    ("masking", "found"),
    [
        ("", ["ATN212"]),
        ("scores = scores + self.temperature", ["ATN212"]),
        ("scores = scores + mask", []),
        ("scores = torch.max(scores + mask, lowest(scores))", []),
        ("scores = hidden(scores, mask)", []),
        ("scores = scores + self.bias_of(x)", []),
    ],
)
def test_a_padding_mask_may_be_idle_beside_what_may_hide_keys(masking: str, found: list[str]) -> None:
    source = forward(PADDED.replace("MASKING", masking))
    assert codes(source.replace("mask=None)", "mask, padding_mask=None)")) == found


KERNELS = """\
import torch
import torch.nn.functional as F
from kernels import attend


def NAME():
    q, k, v = (torch.randn(2, 4, 16, 32) for _ in range(3))
    mask = torch.ones(16, 16, dtype=torch.bool).triu(1)
    assert torch.allclose(attend(q, k, v, mask), F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
"""


@pytest.mark.parametrize(("name", "severity"), [("test_masked", Severity.INFO), ("compare", Severity.ERROR)])
def test_a_mask_that_is_upside_down_in_a_test_is_a_remark(name: str, severity: Severity) -> None:
    (finding,) = lint_source(KERNELS.replace("NAME", name), "test_kernels.py")
    assert (finding.code, finding.severity) == ("ATN205", severity)


def test_a_late_mask_is_told_by_the_name_it_comes_in_by() -> None:
    source = attention(then="weights = scores.softmax(-1) * head_mask\nreturn weights @ v")
    source = source.replace("mask=None)", "head_mask=None)")
    assert codes(source) == []
    calls = "\n\nclass Layer(nn.Module):\n    def __init__(self):\n        self.attention = Attention(64, 8)\n\n"
    calls += "    def forward(self, x, attention_mask):\n        return self.attention(x, head_mask=attention_mask)\n"
    (finding,) = lint_source(source + calls, "attention.py")
    assert finding.message == "attention_mask applied after the softmax; rows no longer sum to 1"


def test_choice_of_the_largest_that_is_thrown_away_is_no_mask() -> None:
    body = "w = torch.softmax(q @ k.mT * self.scale, -1)\nx = torch.where(mask, w, torch.zeros_like(w))\nreturn w @ v"
    assert "ATN202" not in codes(forward(body))


def test_causal_class_whose_caller_may_bring_the_mask_is_fine() -> None:
    assert codes(causal(attention())) == []


def test_the_module_that_the_tests_build_on_is_clean() -> None:
    assert HEAD in attention()
    assert codes(attention()) == []
