"""Dropout that knows of no mode or stands in the wrong place, and what the fused attention is called with."""

from __future__ import annotations

import pytest

from attn_guard.findings import Severity
from attn_guard.lint.run import lint_source
from tests.lint.sources import forward

SDPA = "F.scaled_dot_product_attention(q, k, v, {})"


def codes(source: str) -> list[str]:
    return [finding.code for finding in lint_source(source, "attention.py")]


def module(body: str) -> str:
    """The usual module, which holds dropout rates too."""
    source = forward(body)
    return source.replace(
        "self.scale =", "self.dropout, self.attn_drop, self.p = dropout, nn.Dropout(dropout), 0.1\n        self.scale ="
    ).replace("heads):", "heads, config, dropout=0.0):\n        self.config = config")


@pytest.mark.parametrize(
    "body",
    [
        f"return {SDPA.format('dropout_p=self.dropout')}",
        f"return {SDPA.format('None, self.dropout')}",
        f"return {SDPA.format('attn_mask=mask, dropout_p=self.attn_drop.p')}",
        f"return {SDPA.format('dropout_p=self.config.attention_dropout')}",
        f"return {SDPA.format('dropout_p=self.p')}",
        f"return {SDPA.format('dropout_p=0.1')}",
        f"rate = self.dropout\nreturn {SDPA.format('dropout_p=rate')}",
        f"if t > 8:\n    return {SDPA.format('dropout_p=self.dropout, is_causal=True')}\nreturn x",
        "weights = self.softmax(q @ k.mT * self.scale)\nreturn F.dropout(weights, self.dropout) @ v",
        "weights = self.softmax(q @ k.mT * self.scale)\nreturn F.dropout(weights, p=0.1, training=True) @ v",
        "weights = self.softmax(q @ k.mT * self.scale)\nreturn torch.dropout(weights, 0.1, True) @ v",
        "weights = self.softmax(q @ k.mT * self.scale)\nreturn F.dropout(weights) @ v",
        "weights = self.softmax(q @ k.mT * self.scale)\nreturn nn.Dropout(self.dropout)(weights) @ v",
        "drop = nn.Dropout(0.1)\nreturn drop(self.softmax(q @ k.mT * self.scale)) @ v",
        "return F.dropout(self.softmax(q @ k.mT * self.scale) @ v, self.dropout)",
    ],
)
def test_dropout_that_knows_of_no_mode_is_found(body: str) -> None:
    assert codes(module(body)) == ["ATN501"]


@pytest.mark.parametrize(
    "body",
    [
        f"return {SDPA.format('dropout_p=self.dropout if self.training else 0.0')}",
        f"return {SDPA.format('dropout_p=0.0 if not self.training else self.dropout')}",
        f"return {SDPA.format('dropout_p=self.dropout * self.training')}",
        f"return {SDPA.format('dropout_p=self.training * self.attn_drop.p')}",
        f"return {SDPA.format('dropout_p=float(self.training) * self.p')}",
        f"return {SDPA.format('dropout_p=(self.training and self.p) or 0.0')}",
        f"return {SDPA.format('dropout_p=(self.p, 0.0)[not self.training]')}",
        f"rate = self.dropout\nif not self.training:\n    rate = 0.0\nreturn {SDPA.format('dropout_p=rate')}",
        f"rate = 0.0\nif self.training:\n    rate = self.dropout\nreturn {SDPA.format('dropout_p=rate')}",
        f"if self.training:\n    return {SDPA.format('dropout_p=self.dropout')}\nreturn {SDPA.format('None')}",
        f"if not self.training:\n    return {SDPA.format('None')}\nreturn {SDPA.format('dropout_p=self.dropout')}",
        f"training = self.training\nreturn {SDPA.format('dropout_p=self.dropout if training else 0')}",
        f"return {SDPA.format('dropout_p=0.0')}",
        f"return {SDPA.format('dropout_p=0')}",
        f"return {SDPA.format('dropout_p=rate_of(self)')}",
        f"return {SDPA.format('**options')}",
        "weights = self.softmax(q @ k.mT * self.scale)\nreturn self.attn_drop(weights) @ v",
        "weights = self.softmax(q @ k.mT * self.scale)\nreturn F.dropout(weights, self.p, self.training) @ v",
        "w = self.softmax(q @ k.mT * self.scale)\nreturn F.dropout(w, p=self.p, training=self.training) @ v",
        "weights = self.softmax(q @ k.mT * self.scale)\nif self.training:\n    weights = F.dropout(weights, self.p)\n"
        "return weights @ v",
        "weights = self.softmax(q @ k.mT * self.scale)\nreturn F.dropout(weights, p=0.0) @ v",
        # not of this attention
        "return F.dropout(x, self.p)",
    ],
)
def test_dropout_that_ends_with_training_is_left_alone(body: str) -> None:
    assert codes(module(body)) == []


DROPS = SDPA.format("dropout_p=self.dropout")
BY_HAND = "self.attn_drop(self.softmax(q @ k.mT * self.scale)) @ v"


@pytest.mark.parametrize(
    ("flag", "test", "found"),
    [
        ("hasattr(F, 'flex') and dropout == 0.0", "self.flash", []),
        ("config.dropout == 0", "self.flash", []),
        ("True", "self.dropout == 0.0", []),
        ("True", "self.flash and self.dropout <= 0", []),
        ("True", "not self.dropout", []),
        ("dropout == 0.0", "not self.flash", ["ATN501"]),
        ("hasattr(F, 'flex') or dropout == 0.0", "self.flash", ["ATN501"]),
        ("hasattr(F, 'flex')", "self.flash", ["ATN501"]),
        ("True", "self.dropout == 0.1", ["ATN501"]),
        ("True", "self.dropout > 0.0", ["ATN501"]),
        ("True", "not self.depth", ["ATN501"]),
        ("True", "not self.drop_path", ["ATN501"]),
        ("True", "self.drop_path == 0", ["ATN501"]),
        ("True", "not self.dropout_on_cls", ["ATN501"]),
        ("True", "not self.dropout == 0.0", ["ATN501"]),
        ("True", "not (self.dropout > 0.0 or self.training_free)", []),
        ("True", "self.dropout == 0.0 or self.flash", ["ATN501"]),
    ],
)
def test_a_branch_without_dropout_has_a_rate_of_0(flag: str, test: str, found: list[str]) -> None:
    source = module(f"if {test}:\n    return {DROPS}\nreturn {BY_HAND}")
    assert codes(source.replace("self.scale =", f"self.flash = {flag}\n        self.scale =")) == found


@pytest.mark.parametrize(
    ("flag", "test", "found"),
    [
        ("dropout == 0.0", "not self.flash", []),
        ("True", "self.dropout > 0.0", []),
        ("True", "self.dropout", []),
        ("True", "self.dropout > 0.0 and t > 8", ["ATN501"]),
        ("True", "self.dropout > 0.0 or t > 8", []),
        ("True", "self.drop_path", ["ATN501"]),
        ("True", "drop_mask", ["ATN501"]),
        ("dropout == 0.0", "self.flash", ["ATN501"]),
    ],
)
def test_the_other_side_of_a_branch_with_dropout_has_a_rate_of_0(flag: str, test: str, found: list[str]) -> None:
    source = module(f"if {test}:\n    return {BY_HAND}\nreturn {DROPS}")
    assert codes(source.replace("self.scale =", f"self.flash = {flag}\n        self.scale =")) == found


def test_a_rate_taken_over_from_a_configuration_is_found() -> None:
    source = module(f"return {SDPA.format('dropout_p=self.dropout')}").replace(
        "= dropout, nn.", "= config.dropout, nn."
    )
    assert codes(source) == ["ATN501"]


def test_a_rate_that_follows_the_mode_by_a_method_is_left_alone() -> None:
    source = module(f"return {SDPA.format('dropout_p=self.dropout')}")
    assert codes(source + "\n    def train(self, mode=True):\n        self.dropout = 0.1 if mode else 0.0\n") == []
    by_property = source.replace("self.dropout,", "self.rate,", 1).replace("p=self.dropout)", "p=self.dropout_p)")
    body = "\n    @property\n    def dropout_p(self):\n        return self.rate if self.training else 0.0\n"
    assert codes(by_property + body) == []


def test_the_rate_is_followed_into_a_helper() -> None:
    helper = (
        "\ndef attend(q, k, v, dropout=0.0):\n    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)\n"
    )
    assert codes(module("return attend(q, k, v, self.dropout)") + helper) == ["ATN501"]
    assert codes(module("return attend(q, k, v, self.dropout if self.training else 0.0)") + helper) == []
    assert codes(helper.replace("\ndef", "import torch.nn.functional as F\ndef")) == []


@pytest.mark.parametrize(
    "weights",
    [
        "self.softmax(self.drop(scores))",
        "F.softmax(F.dropout(scores, 0.1, self.training), dim=-1)",
        "self.drop(scores.masked_fill(mask, -torch.inf)).softmax(-1)",
    ],
)
def test_dropout_on_the_scores_is_found(weights: str) -> None:
    (finding,) = lint_source(forward(f"scores = q @ k.mT * self.scale\nreturn {weights} @ v"), "attention.py")
    assert (finding.code, finding.related[0][1]) == ("ATN502", "softmax over what is left")


@pytest.mark.parametrize(
    "body",
    [
        "return self.drop(self.softmax(q @ k.mT * self.scale)) @ v",
        "return self.softmax(self.drop(q) @ self.drop(k).mT * self.scale) @ self.drop(v)",
        # DropKey hides by chance with -inf
        "scores = q @ k.mT * self.scale\n"
        "return self.softmax(scores + torch.bernoulli(torch.ones_like(scores) * 0.1) * -1e12) @ v",
        "return self.drop(q @ k.mT * self.scale)",
        "return self.drop(x).softmax(-1)",
    ],
)
def test_dropout_elsewhere_is_left_alone(body: str) -> None:
    assert codes(forward(body)) == []


@pytest.mark.parametrize(
    "given",
    ["attn_mask=mask, is_causal=True", "mask, 0.0, True", "self.keep[:t, :t].bool(), is_causal=True"],
)
def test_a_mask_beside_is_causal_is_found(given: str) -> None:
    assert codes(forward(f"return {SDPA.format(given)}")) == ["ATN802"]


@pytest.mark.parametrize(
    "body",
    [
        f"return {SDPA.format('attn_mask=None, is_causal=True')}",
        f"return {SDPA.format('attn_mask=mask, is_causal=False')}",
        f"return {SDPA.format('attn_mask=mask, is_causal=mask is None')}",
        f"return {SDPA.format('attn_mask=mask, is_causal=self.causal')}",
        f"if mask is None:\n    return {SDPA.format('attn_mask=mask, is_causal=True')}\nreturn x",
        f"if mask is not None:\n    return x\nelse:\n    return {SDPA.format('attn_mask=mask, is_causal=True')}",
    ],
)
def test_one_of_both_is_left_alone(body: str) -> None:
    assert codes(forward(body)) == []


@pytest.mark.parametrize(
    ("imported", "used"),
    [
        ("import torch", "torch.backends.cuda.sdp_kernel"),
        ("from torch.backends.cuda import sdp_kernel", "sdp_kernel"),
        ("from torch.backends import cuda", "cuda.sdp_kernel"),
    ],
)
def test_the_old_choice_of_kernels_is_found_without_a_core_in_sight(imported: str, used: str) -> None:
    source = f"{imported}\ndef run(model, x):\n    with {used}(enable_math=False):\n        return model(x)\n"
    assert codes(source) == ["ATN803"]


def test_the_old_choice_of_kernels_for_old_versions_is_fine() -> None:
    source = """
import torch

def kernels():
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
        return sdpa_kernel(SDPBackend.MATH)
    except ImportError:
        return torch.backends.cuda.sdp_kernel(enable_flash=False, enable_mem_efficient=False)
"""
    assert codes(source) == []


def test_the_new_choice_of_kernels_is_left_alone() -> None:
    imported = "from torch.nn.attention import sdpa_kernel\n"
    assert codes(f"{imported}def run(model, x):\n    with sdpa_kernel([]):\n        return model(x)\n") == []


HANDING = """\
import torch
from torch import nn
from .kernels import choose, run, Core


class Attention(nn.Module):
    def __init__(self, d_model, attn_dropout=0.1, given=None):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, d_model) for _ in range(3))
        self.attn_dropout = attn_dropout
        self.attend = choose()
        self.given = given
        self.core = Core()

    def forward(self, x, mask=None):
        q, k, v = self.q(x), self.k(x), self.v(x)
        return CALL
"""


@pytest.mark.parametrize(
    "call",
    [
        "self.attend(q, k, v, mask=mask, dropout_p=self.attn_dropout)",
        "run(q=q, k=k, v=v, dropout_p=self.attn_dropout)",
    ],
)
def test_rate_of_the_module_for_a_function_that_is_not_in_sight_is_found(call: str) -> None:
    (finding,) = lint_source(HANDING.replace("CALL", call), "attention.py")
    assert (finding.code, finding.severity, finding.fix) == ("ATN501", Severity.INFO, None)
    text = HANDING.replace("CALL", call).splitlines()[finding.location.line - 1]
    assert text[finding.location.column - 1 :].startswith("self.attn_dropout")


@pytest.mark.parametrize(
    "call",
    [
        "self.attend(q, k, v, dropout_p=self.attn_dropout if self.training else 0.0)",
        "self.attend(q, k, v, dropout_p=self.attn_dropout, training=self.training)",
        "self.attend(self, q, k, v, dropout_p=self.attn_dropout)",  # can ask the module
        "self.attend(q, k, v, dropout_p=self.attn_dropout, **options)",
        "self.core(q, k, v, dropout_p=self.attn_dropout)",  # a module has a mode of its own
        "self.given(q, k, v, dropout_p=self.attn_dropout)",
        "self.attend(x, v, dropout_p=self.attn_dropout)",
        "self.attend(q, k, v, dropout_p=0.0)",
    ],
)
def test_rates_that_are_guarded_and_receivers_that_may_ask_for_the_mode_are_fine(call: str) -> None:
    assert lint_source(HANDING.replace("CALL", call), "attention.py", select=["ATN501"]).findings == ()
