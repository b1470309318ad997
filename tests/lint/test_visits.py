"""A function that the walk of a caller has come through is not walked again, unless a walk of its own may see more."""

from __future__ import annotations

import pytest

from attn_guard.lint import trace
from attn_guard.lint.reader import read
from attn_guard.lint.regions import Region, cut
from attn_guard.lint.roots import roots
from attn_guard.lint.run import lint_source
from attn_guard.lint.values import Instance, Layer

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

    def forward(self, x, mask, cond):
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


def walks(source: str) -> list[trace.Walk]:
    """A walk from each root, all of one file."""
    file = cut("model.py", source)
    starts = roots(file)
    shared, made = trace.Shared(frozenset(starts)), []
    for region in starts:
        made.append(trace.Walk(file, shared))
        made[-1].start(region)
    return made


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
        ("config.width, config.heads, config.causal", "x, cond"),
        ("config.width, config.heads, config.causal", "x, self.build(x)"),
        ("config.width, config.heads, False", "x, mask"),
        ("config.width, config.heads, causal=True", "x, mask"),
    ],
)
def test_function_is_walked_for_itself_where_its_caller_decides_a_branch(
    monkeypatch: pytest.MonkeyPatch, constructed: str, given: str
) -> None:
    assert walked(monkeypatch, modules(constructed, given)) == ["Block.forward", "Attention.forward"]


@pytest.mark.parametrize(
    "given", ["self.norm(x), mask", "x, None", "x", "x, cond", "x, cond > 3", "x, self.build(x)", "x, cond['m']"]
)
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


HEAD = """
import torch
import torch.nn.functional as F
from attn_guard import contract
from torch import nn
"""


def findings_of(attention: str, block: str) -> list[str]:
    return [finding.code for finding in lint_source(HEAD + attention + block, "model.py") if finding.fails]


FUSED = """
class Attention(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dropout, self.scale = dropout, width**-0.5

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask{more}))
"""
BLOCK = """
class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention, self.dropout = Attention(config.width, config.dropout), config.dropout

    def forward(self, x, mask):
{body}
"""


def test_promise_about_a_mask_holds_although_a_caller_was_followed() -> None:
    promised = '@contract(masks={"mask": "ignore"})' + FUSED.format(more="")
    assert findings_of(promised, BLOCK.format(body="        return self.attention(x, mask)")) == ["ATN205"]


@pytest.mark.parametrize(
    "body",
    [
        "        return self.attention(x, mask)",
        "        if self.training:\n            x = self.attention(x, mask)\n        return x",
        "        if not self.training:\n            return x\n        return self.attention(x, mask)",
        "        if self.dropout == 0.0:\n            x = self.attention(x, mask)\n        return x",
    ],
)
def test_dropout_of_a_callee_does_not_depend_on_when_it_is_called(body: str) -> None:
    assert findings_of(FUSED.format(more=", dropout_p=self.dropout"), BLOCK.format(body=body)) == ["ATN501"]


def test_swapped_memory_is_found_whatever_the_caller_calls_it() -> None:
    attention = """
class CrossAttention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, memory):
        q, k, v = self.q(memory), self.k(x), self.v(x)
        return (q @ k.mT * q.size(-1) ** -0.5).softmax(-1) @ v
"""
    block = """
class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.cross = CrossAttention(config.width)

    def forward(self, h, enc):
        return h + self.cross(h, enc)
"""
    assert findings_of(attention, block) == ["ATN401"]


def test_excuse_of_a_caller_is_none_for_its_callee() -> None:
    """The caller zeroes weights of another attention; what the callee draws by a function is narrow all the same."""
    source = """
def below(t):
    return torch.ones(t, t, dtype=torch.bool).triu()

class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.mT * q.size(-1) ** -0.5).masked_fill(below(x.size(1)), float("-inf"))
        return scores.softmax(-1) @ v
"""
    block = """
class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention, self.qkv = Attention(config.width), nn.Linear(config.width, 3 * config.width)

    def forward(self, x, seen):
        q, k, v = self.qkv(self.attention(x)).chunk(3, -1)
        scores = (q @ k.mT * q.size(-1) ** -0.5).masked_fill(~seen, float("-inf"))
        return scores.softmax(-1).masked_fill(~seen, 0.0) @ v
"""
    assert findings_of(source, block) == ["ATN215"]


def test_size_that_decides_whether_there_is_one_is_no_open_argument() -> None:
    attend = """
def attend(q, k, v, scale=None):
    t = q.size(1)
    causal = torch.ones(t, t, dtype=torch.bool)
    if scale is None:
        scores = (q @ k.mT * q.size(-1) ** -0.5).masked_fill(causal.triu(), float("-inf"))
        return scores.softmax(-1) @ v
    return (q @ k.mT * scale).masked_fill(causal.triu(1), float("-inf")).softmax(-1) @ v
"""
    block = """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.scale = nn.Linear(width, 3 * width), width**-0.5

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return attend(q, k, v, self.scale)
"""
    assert findings_of(attend, block) == ["ATN215"]


def test_constructor_is_read_whole_however_long_the_walk_was_that_asked_for_it() -> None:
    long = "".join(f"        x = x + {number}\n" for number in range(3980))
    wide = FUSED.format(more="").replace("q, k, v = self.qkv(x)", "q, k, v = self.qkv(x)")
    wide = wide.replace(
        "F.scaled_dot_product_attention(q, k, v, attn_mask=mask)", "(q @ k.mT * self.scale**2).softmax(-1) @ v"
    )
    assert findings_of(wide, BLOCK.format(body=long + "        return self.attention(x, mask)")) == findings_of(
        wide, ""
    )


def test_what_is_set_on_one_object_is_not_set_on_another() -> None:
    source = (
        FUSED.format(more="")
        + """
class Pair(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.first, self.second = Attention(config.width, 0.0), Attention(config.width, 0.0)
        self.first.out = self.second

    def forward(self, x, mask):
        return self.second(self.first(x, mask), mask)
"""
    )
    (walk,) = [walk for walk in walks(HEAD + source) if walk.instance and walk.instance.type.name == "Pair"]
    assert walk.instance is not None
    second = walk.instance.attributes["second"]
    assert isinstance(second, Instance)
    assert isinstance(second.attributes["out"], Layer)
