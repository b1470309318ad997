"""What lets the future into a causal model beside its attention: norms and convolutions over time."""

from __future__ import annotations

import pytest

from attn_guard.lint.run import lint_source

BLOCK = """\
import torch
from torch import nn
from torch.nn import functional as F
import attn_guard


{decorator}class {name}(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        batch, time, dim = x.shape
        q, k, v = self.qkv({norm}).chunk(3, -1)
        return self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True))
"""


def block(norm: str, name: str = "CausalBlock", decorator: str = "") -> list[str]:
    report = lint_source(BLOCK.format(norm=norm, name=name, decorator=decorator), "block.py")
    return [f"{finding.code} {finding.severity}" for finding in report]


@pytest.mark.parametrize("norm", ["F.layer_norm(x, x.shape[1:])", "F.layer_norm(x, (time, dim))"])
def test_norm_over_time_is_found_in_a_causal_class(norm: str) -> None:
    assert block(norm) == ["ATN405 warning"]
    assert block(norm, "Block", "@attn_guard.contract(causal=True)\n") == ["ATN405 error"]
    assert block(norm, "Block") == []


@pytest.mark.parametrize(
    "norm", ["F.layer_norm(x, x.shape[-1:])", "F.layer_norm(x, (dim,))", "F.layer_norm(x, x.shape[2:])"]
)
def test_norm_over_features_is_fine(norm: str) -> None:
    assert block(norm) == []


MODEL = """\
import torch
from torch import nn
from torch.nn import functional as F
from einops import rearrange


class {conv}(nn.Module):
    def __init__(self, dim, kernel_size):
        super().__init__()
        self.pad = kernel_size - 1
        self.conv = nn.Conv1d(dim, dim, kernel_size)

    def forward(self, x):
        return self.conv(F.pad(x, (self.pad, 0)))


class {down}(nn.Module):
    def __init__(self, dim, kernel_size=3):
        super().__init__()
        self.conv = {made}

    def forward(self, x):
        x = rearrange(x, "{axes}")
        return self.conv(x)


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.first = {conv}(dim, 3)
        self.down = {used}(dim)
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.qkv(self.down(self.first(x)).mT).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
"""
BOTH = "nn.Conv1d(dim, dim, kernel_size, stride=2, padding=kernel_size // 2)"


def model(
    made: str = BOTH,
    *,
    down: str = "Downsample",
    conv: str = "CausalConv1d",
    axes: str = "b d t -> b d t",
    used: str = "",
) -> list[tuple[str, str]]:
    source = MODEL.format(made=made, down=down, conv=conv, axes=axes, used=used or down)
    lines = source.splitlines()
    return [(f.code, lines[f.location.line - 1].strip()) for f in lint_source(source, "model.py")]


@pytest.mark.parametrize(
    "made",
    [
        BOTH,
        "nn.Conv1d(dim, dim, kernel_size, padding = (kernel_size - 1) // 2)",
        "nn.Conv1d(dim, dim, kernel_size, padding='same')",
        "torch.nn.Conv1d(dim, dim, kernel_size=kernel_size, padding=kernel_size // 2, stride=2)",
    ],
)
def test_convolution_that_sees_later_steps_in_a_causal_model_is_found(made: str) -> None:
    assert model(made) == [("ATN405", f"self.conv = {made}")]
    assert model(made, down="TimeDownsample", axes="b d n -> b d n") == [("ATN405", f"self.conv = {made}")]


def test_convolutions_that_are_no_fault_are_fine() -> None:
    assert model("nn.Conv1d(dim, dim, kernel_size, stride=2)") == []
    assert model("nn.Conv1d(dim, dim, 1)") == []
    assert model(conv="LeftConv1d") == []  # nothing says that the model is causal
    assert model(conv="NonCausalConv1d") == []
    assert model(axes="b d n -> b d n") == []  # nor that this is time
    assert model(down="NonCausalDownsample") == []  # meant
    assert model(used="Other") == []  # of another model
