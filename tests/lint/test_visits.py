"""A function that the walk of a caller has come through is not walked again, unless a walk of its own may see more."""

from __future__ import annotations

import pytest

from attn_guard.lint import trace
from attn_guard.lint.reader import read
from attn_guard.lint.regions import Region, cut
from attn_guard.lint.run import lint_source
from attn_guard.lint.values import Instance

MODULES = """
import math
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.head_dim, self.causal = heads, width // heads, causal
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x, mask=None):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores + (mask == 0)
        if self.causal:
            scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(), float("-inf"))
        return scores.softmax(dim=-1) @ v

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = Attention(CONSTRUCTED)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, x, mask):
        return x + self.attention(GIVEN)
"""


def walked(monkeypatch: pytest.MonkeyPatch, source: str) -> list[str]:
    """Names of the functions that a walk of their own starts from."""
    names: list[str] = []
    start = trace.Walk.start

    def noted(self: trace.Walk, region: Region) -> None:
        names.append(region.qualified_name)
        start(self, region)

    monkeypatch.setattr(trace.Walk, "start", noted)
    read(cut("model.py", source))
    return names


def modules(constructed: str = "config.width, config.heads, config.causal", given: str = "self.norm(x), mask") -> str:
    return MODULES.replace("CONSTRUCTED", constructed).replace("GIVEN", given)


def found(source: str) -> list[tuple[str, int]]:
    return [(finding.code, finding.location.line) for finding in lint_source(source, "model.py")]


FLAGS = ("ATN206", MODULES[: MODULES.index("scores + (mask")].count("\n") + 1)
TRIANGLE = ("ATN215", MODULES[: MODULES.index(".triu()")].count("\n") + 1)


def test_function_is_not_walked_again_where_its_caller_hands_over_all_that_matters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert walked(monkeypatch, modules()) == ["Block.forward"]


@pytest.mark.parametrize(
    ("constructed", "given"),
    [
        ("config.width, config.heads, config.causal", "x, None"),
        ("config.width, config.heads, config.causal", "x"),
        ("config.width, config.heads, False", "x, mask"),
        ("config.width, config.heads, causal=True", "x, mask"),
    ],
)
def test_function_is_walked_for_itself_where_its_caller_decides_a_branch(
    monkeypatch: pytest.MonkeyPatch, constructed: str, given: str
) -> None:
    assert walked(monkeypatch, modules(constructed, given)) == ["Block.forward", "Attention.forward"]


@pytest.mark.parametrize("given", ["self.norm(x), mask", "x, None", "x"])
@pytest.mark.parametrize("causal", ["config.causal", "True", "False"])
def test_faults_in_a_callee_do_not_depend_on_what_its_caller_hands_over(given: str, causal: str) -> None:
    assert found(modules(f"config.width, config.heads, {causal}", given)) == [FLAGS, TRIANGLE]


def test_objects_made_of_equal_arguments_are_constructed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    constructed: list[str] = []
    construct = trace.Walk._constructed

    def noted(self: trace.Walk, instance: Instance) -> object:
        constructed.append(instance.type.name)
        return construct(self, instance)

    monkeypatch.setattr(trace.Walk, "_constructed", noted)
    several = modules() + "".join(
        f"""
class Block{number}(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = Attention(config.width, config.heads, {causal})

    def forward(self, x, mask):
        return x + self.attention(x, mask)
"""
        for number, causal in enumerate(("config.causal", "config.causal", "True"))
    )
    read(cut("model.py", several))
    assert constructed.count("Attention") == 3  # of nothing known, of what the config says, and with True
