"""What ``--fix`` makes of the broken twins and of other styles: read again it is clean, and run it is right."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import attn_guard
from attn_guard.findings import Detector, Report
from attn_guard.gotchas.registry import Entry, entries
from attn_guard.lint.mend import Mended, mend
from attn_guard.lint.run import lint_source
from tests.lint.sources import attention, forward

FIXABLE = [entry for entry in entries().values() if entry.fix and Detector.LINT in entry.detectors]
PROBED = [entry for entry in FIXABLE if Detector.PROBE in entry.detectors]


def judge(content: bytes) -> Report:
    return lint_source(content, "model.py", preview=True)


def mended(source: str | bytes, *, with_unsafe: bool = True) -> Mended:
    return mend(source.encode() if isinstance(source, str) else source, "model.py", judge, with_unsafe=with_unsafe)


def checked(file: Path, code: str) -> Report:
    twin = runpy.run_path(str(file))
    args, kwargs = twin["inputs"]() if "inputs" in twin else (None, None)
    return attn_guard.check(twin["build"]().eval(), args, kwargs, select=["ALL", code], preview=True)


@pytest.mark.parametrize("entry", FIXABLE, ids=lambda entry: entry.gotcha.code)
def test_the_mended_twin_is_clean_and_changed_where_it_is_blamed_only(entry: Entry) -> None:
    source = entry.broken.read_text(encoding="utf-8")
    result = mended(source)
    assert result.fixed >= 1
    assert result.report.findings == ()
    before, after = source.splitlines(), result.content.decode().splitlines()
    assert len(before) == len(after)
    changed = [old for old, new in zip(before, after, strict=True) if old != new]
    if entry.gotcha.code == "ATN602":  # what is dropped has a name of its own, also where it is read
        changed.remove("        context = weights @ v")
    places = [place for found in judge(source.encode()) for place in (found.location, *(r for r, _ in found.related))]
    blamed = {before[place.line - 1] for place in places}
    assert changed
    assert all(line in blamed or f"# <- {entry.gotcha.code}" in line for line in changed)
    assert all(old.partition("#")[2] == new.partition("#")[2] for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("entry", PROBED, ids=lambda entry: entry.gotcha.code)
def test_the_probe_finds_fault_with_the_broken_twin_and_none_with_the_mended_one(entry: Entry, tmp_path: Path) -> None:
    file = tmp_path / entry.broken.name
    file.write_bytes(mended(entry.broken.read_bytes()).content)
    assert entry.gotcha.code in checked(entry.broken, entry.gotcha.code).codes
    report = checked(file, entry.gotcha.code)
    assert list(report) == [], str(report)
    assert report.sites


STYLES: list[tuple[str, str, str]] = [
    ("ATN101", "q @ k.mT", "q @ k.mT * q.shape[-1] ** -0.5"),
    ("ATN101", "torch.matmul(q, k.mT)", "torch.matmul(q, k.mT) * q.shape[-1] ** -0.5"),
    ("ATN101", "torch.matmul(q, k.mT).float()", "(torch.matmul(q, k.mT) * q.shape[-1] ** -0.5).float()"),
    ("ATN101", "(q @ k.mT).float()", "(q @ k.mT * q.shape[-1] ** -0.5).float()"),
    (
        "ATN101",
        "torch.einsum('bhqd,bhkd->bhqk', q, k)",
        "torch.einsum('bhqd,bhkd->bhqk', q, k) * q.shape[-1] ** -0.5",
    ),
    ("ATN102", "q @ k.mT / math.sqrt(self.d_model)", "q @ k.mT / q.shape[-1] ** 0.5"),
    ("ATN102", "(q @ k.mT) * self.d_model ** -0.5", "(q @ k.mT) * q.shape[-1] ** -0.5"),
]


@pytest.mark.parametrize(("code", "before", "after"), STYLES)
def test_scales_are_mended_on_request_in_the_style_of_the_line(code: str, before: str, after: str) -> None:
    source = attention(before)
    assert [found.code for found in judge(source.encode())] == [code]
    assert mended(source, with_unsafe=False).content.decode() == source
    assert mended(source).content.decode() == attention(after)


BODIES: list[tuple[str, str, str | None]] = [
    (
        "ATN103",
        "return self.o(F.scaled_dot_product_attention(q * self.scale, k, v))",
        "return self.o(F.scaled_dot_product_attention(q, k, v))",
    ),
    (
        "ATN103",
        "q = q * self.scale\nreturn F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        "q = q * self.scale\nreturn F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)",
    ),
    (
        "ATN103",
        "q = self.scale * q  # once\nreturn F.scaled_dot_product_attention(q, k, v, scale=self.scale)  # twice",
        "q = self.scale * q  # once\nreturn F.scaled_dot_product_attention(q, k, v, scale=1.0)  # twice",
    ),
    (
        "ATN103",
        "weights = self.softmax(((q * self.scale) @ k.mT) * self.scale)\nreturn weights @ v",
        "weights = self.softmax(((q) @ k.mT) * self.scale)\nreturn weights @ v",
    ),
    (
        "ATN103",
        "scores = q @ k.mT / math.sqrt(self.head_dim)\nreturn self.softmax(scores.div(self.head_dim ** 0.5)) @ v",
        "scores = q @ k.mT\nreturn self.softmax(scores.div(self.head_dim ** 0.5)) @ v",
    ),
    ("ATN103", "return (q @ k.mT / self.scale).softmax(-1) @ v", "return (q @ k.mT * self.scale).softmax(-1) @ v"),
    ("ATN103", "q *= self.scale\nreturn F.scaled_dot_product_attention(q, k, v)", None),
    (
        "ATN106",
        "weights = (q @ k.mT * self.scale).softmax(-1)\nreturn F.softmax(self.drop(weights), dim=-1) @ v",
        "weights = (q @ k.mT * self.scale).softmax(-1)\nreturn self.drop(weights) @ v",
    ),
    (
        "ATN106",
        "weights = (q @ k.mT * self.scale).softmax(-1)\nweights = weights.softmax(-1)\nreturn weights @ v",
        None,
    ),
    (
        "ATN106",
        "scores = (q @ k.mT * self.scale).masked_fill(mask == 0, -1e9)\nF.softmax(scores, dim=-1)\nreturn scores",
        "scores = (q @ k.mT * self.scale).masked_fill(mask == 0, -1e9)\nscores = F.softmax(scores, dim=-1)\n"
        "return scores",
    ),
    (
        "ATN106",
        "scores = (q @ k.mT * self.scale).masked_fill(mask == 0, -1e9)\n"
        "return torch.matmul(scores, v), self.softmax(x)",
        "scores = (q @ k.mT * self.scale).masked_fill(mask == 0, -1e9)\n"
        "return torch.matmul(scores.softmax(dim=-1), v), self.softmax(x)",
    ),
    (
        "ATN107",
        "weights = (q @ k.mT * self.scale).softmax(-1)\nreturn weights.transpose(-2, -1) @ v",
        "weights = (q @ k.mT * self.scale).softmax(-1)\nreturn weights @ v",
    ),
    (
        "ATN107",
        "weights = (q @ k.mT * self.scale).softmax(-1)\nreturn torch.matmul(weights.mT, v)",
        "weights = (q @ k.mT * self.scale).softmax(-1)\nreturn torch.matmul(weights, v)",
    ),
    (
        "ATN107",
        "weights = (q @ k.mT * self.scale).softmax(-1)\nweights = weights.mT\nreturn weights @ v",
        None,
    ),
    (
        "ATN107",
        "a = (q @ k.mT * self.scale).softmax(-1)\nreturn torch.einsum('bhjd, bhji -> bhid', v, a)",
        "a = (q @ k.mT * self.scale).softmax(-1)\nreturn torch.einsum('bhjd, bhij -> bhid', v, a)",
    ),
    (
        "ATN201",
        "a = F.softmax(q @ k.mT * self.scale, dim=-1)  # all\na = a.masked_fill(mask == 0, 0.0)  # some\nreturn a @ v",
        'a = F.softmax((q @ k.mT * self.scale).masked_fill(mask == 0, float("-inf")), dim=-1)  # all\n'
        "a = a.masked_fill(mask == 0, 0.0)  # some\nreturn a @ v",
    ),
    (
        "ATN201",
        "scores = q @ k.mT * self.scale\nweights = self.softmax(scores) * mask\nreturn weights @ v",
        'scores = q @ k.mT * self.scale\nweights = self.softmax(scores.masked_fill(mask == 0, float("-inf"))) * mask\n'
        "return weights @ v",
    ),
    # the mask is not there yet where the softmax is, or it is one of something else
    (
        "ATN201",
        "a = (q @ k.mT * self.scale).softmax(-1)\nkeep = torch.tril(torch.ones(t, t))\na = a * keep\nreturn a @ v",
        None,
    ),
    ("ATN201", "a = (q @ k.mT * self.scale).softmax(-1)\nw = a * 2\nw = w * mask\nreturn w @ v", None),
    (
        "ATN502",
        "return F.softmax(self.drop(q @ k.mT * self.scale), dim=-1) @ v",
        "return self.drop(F.softmax(q @ k.mT * self.scale, dim=-1)) @ v",
    ),
    (
        "ATN502",
        "return F.dropout(q @ k.mT * self.scale, 0.1, self.training).softmax(-1) @ v",
        "return F.dropout((q @ k.mT * self.scale).softmax(-1), 0.1, self.training) @ v",
    ),
    (
        "ATN108",
        "s = q @ k.mT * self.scale\np = s.exp()\nreturn p / p.sum(dim=-1, keepdim=True) @ v",
        "s = q @ k.mT * self.scale\np = (s - s.amax(dim=-1, keepdim=True)).exp()\n"
        "return p / p.sum(dim=-1, keepdim=True) @ v",
    ),
    ("ATN307", "return einsum('bhij,bihd->bihd', q, k)", "return einsum('bhij,bjhd->bihd', q, k)"),
    ("ATN307", "return einsum('bhij,bhkd->bhid', q, k)", None),
    (
        "ATN306",
        "return flash_attn_func(q, k, v)",
        "return flash_attn_func(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)",
    ),
    (
        "ATN501",
        "q, k, v = (y.transpose(1, 2) for y in (q, k, v))\nreturn flash_attn_func(q, k, v, dropout_p=0.1)",
        "q, k, v = (y.transpose(1, 2) for y in (q, k, v))\n"
        "return flash_attn_func(q, k, v, dropout_p=0.1 if self.training else 0.0)",
    ),
    (
        "ATN602",
        "w = self.softmax(q @ k.mT * self.scale)\nw = self.drop(w)  # some\nreturn torch.matmul(w, v), w",
        "w = self.softmax(q @ k.mT * self.scale)\ndropped_w = self.drop(w)  # some\n"
        "return torch.matmul(dropped_w, v), w",
    ),
    (
        "ATN602",
        "w = self.softmax(q @ k.mT * self.scale)\nw = self.drop(w)\nc = w @ v\nboth = (c, w)\nreturn both",
        "w = self.softmax(q @ k.mT * self.scale)\ndropped_w = self.drop(w)\nc = dropped_w @ v\n"
        "both = (c, w)\nreturn both",
    ),
    # more reads it, or the product is also reached without dropout
    ("ATN602", "w = self.softmax(q @ k.mT * self.scale)\nw = self.drop(w)\nw = w * 1\nreturn w @ v, w", None),
    ("ATN602", "w = self.softmax(q @ k.mT * self.scale)\nif t > 1:\n    w = self.drop(w)\nreturn w @ v, w", None),
    ("ATN502", "s = self.drop(q @ k.mT * self.scale)\nreturn s.softmax(-1) @ v", None),
]


@pytest.mark.parametrize(("code", "before", "after"), BODIES)
def test_what_is_sure_to_be_wrong_is_mended_on_request_and_what_is_not_stays(
    code: str, before: str, after: str | None
) -> None:
    source = forward(before)
    assert {found.code for found in judge(source.encode())} == {code}
    assert (mended(source, with_unsafe=False).content.decode() == source) is (code != "ATN501")
    assert mended(source).content.decode() == forward(after or before)


LAYERS = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.attention = nn.MultiheadAttention(d, h, batch_first=True)

    def forward(self, x, key_padding_mask):
        CALL
"""
CALLS: list[tuple[str, str, str | None]] = [
    (
        "ATN604",
        "return x + self.attention(x, x, x, key_padding_mask)[0]",
        "return x + self.attention(x, x, x, key_padding_mask, need_weights=False)[0]",
    ),
    (
        "ATN604",
        "y, _ = self.attention(x, x, x, need_weights=True, key_padding_mask=key_padding_mask)\n        return y",
        "y, _ = self.attention(x, x, x, need_weights=False, key_padding_mask=key_padding_mask)\n        return y",
    ),
    ("ATN604", "return self.attention(x, x, x, key_padding_mask, True)[0]", None),
    (
        "ATN207",
        "return self.attention(x, x, x, attn_mask=key_padding_mask, need_weights=False)[0]",
        "return self.attention(x, x, x, key_padding_mask=key_padding_mask, need_weights=False)[0]",
    ),
]


@pytest.mark.parametrize(("code", "before", "after"), CALLS)
def test_calls_of_layers_are_mended(code: str, before: str, after: str | None) -> None:
    source = LAYERS.replace("CALL", before)
    assert [found.code for found in judge(source.encode())] == [code]
    assert mended(source).content.decode() == LAYERS.replace("CALL", after or before)
    assert (mended(source, with_unsafe=False).content.decode() != source) is (code == "ATN604" and after is not None)


MASKS: list[tuple[str, str, str]] = [
    ("ATN203", "scores = scores.masked_fill(mask == 0, 1e-9)", "scores = scores.masked_fill(mask == 0, float('-inf'))"),
    ("ATN203", "scores.masked_fill_(mask == 0, value=-10)", "scores.masked_fill_(mask == 0, value=float('-inf'))"),
    (
        "ATN203",
        "scores = torch.where(mask == 0, -5.0, scores)",
        "scores = torch.where(mask == 0, float('-inf'), scores)",
    ),
    ("ATN203", "scores[mask == 0] = 0", "scores[mask == 0] = float('-inf')"),
]


@pytest.mark.parametrize(("code", "before", "after"), MASKS)
def test_weak_fills_are_mended_at_once(code: str, before: str, after: str) -> None:
    source = attention(then=before)
    assert [found.code for found in judge(source.encode())] == [code]
    result = mended(source, with_unsafe=False)
    assert result.content.decode() == attention(then=after.replace("'", '"'))


@pytest.mark.parametrize(
    "then",
    [
        "scores = scores + (1 - mask) * -10",  # minus infinity times zero is not a number
        "scores = scores.masked_fill(mask == 0, self.fill_value)",
        "scores.masked_fill(mask == 0, -1e9)\nscores = scores.masked_fill(mask == 0, -1e9)",  # dead code beside a mask
    ],
)
def test_what_is_not_certain_is_left(then: str) -> None:
    source = attention(then=then)
    assert mended(source).content.decode() == source


def test_a_dropped_mask_is_never_made_to_work_without_a_request() -> None:
    source = attention(then="scores.masked_fill(mask == 0, -1e9)")
    assert mended(source, with_unsafe=False).content.decode() == source
    kept = attention(then="scores = scores.masked_fill(mask == 0, -1e9)")
    assert mended(source).content.decode() == kept


def test_a_silenced_finding_is_not_mended() -> None:
    source = attention(then="scores = scores.masked_fill(mask == 0, 0)  # attn-guard: ignore[ATN203] meant")
    assert mended(source).content.decode() == source


def test_several_fixes_in_one_file_are_all_made() -> None:
    source = attention("q @ k.mT", then="scores = scores.masked_fill(mask == 0, 0)")
    result = mended(source)
    assert result.fixed == 2
    assert result.report.findings == ()


VIEW = forward(
    "context = F.softmax(q @ k.mT * self.scale, dim=-1) @ v\n"
    "context = context.transpose(1, 2)  # heads last: é\n"
    "return self.o(context.view(\n\tb,  # batch\n\tt,\n\t-1))\n"
)


@pytest.mark.parametrize(
    "content",
    [
        VIEW.encode(),
        VIEW.encode("utf-8-sig"),
        VIEW.replace("\n", "\r\n").encode(),
        ("# -*- coding: latin-1 -*-\n" + VIEW).encode("latin-1"),
        VIEW.encode("latin-1"),
        VIEW.replace("    ", "\t").encode(),
        VIEW.rstrip("\n").encode(),
    ],
    ids=["plain", "mark", "windows", "latin-1", "undeclared", "tabs", "no line end"],
)
def test_everything_but_the_span_stays_byte_by_byte(content: bytes) -> None:
    assert mended(content).content == content.replace(b"context.view(", b"context.reshape(")


def test_a_fix_that_mends_nothing_is_not_made() -> None:
    source = attention("q @ k.mT").encode()
    found = judge(source)
    assert found.findings
    assert mend(source, "model.py", lambda content: found, with_unsafe=True).content == source


def test_a_fix_that_would_break_the_syntax_is_not_made() -> None:
    from dataclasses import replace

    from attn_guard.findings import Edit, Fix

    source = attention("q @ k.mT").encode()

    def breaking(content: bytes) -> Report:
        report = judge(content)
        broken = [replace(f, fix=Fix((Edit(replace(f.location, end_column=f.location.column), ")"),))) for f in report]
        return replace(report, findings=tuple(broken))

    assert mend(source, "model.py", breaking).content == source


def test_mended_text_is_not_mended_again() -> None:
    for entry in FIXABLE:
        once = mended(entry.broken.read_bytes()).content
        assert mended(once).content == once


def test_a_fix_says_where_it_edits() -> None:
    source = attention("q @ k.mT")
    (found,) = judge(source.encode())
    assert found.fix is not None
    (edit,) = found.fix.edits
    assert edit.location.path == "model.py"
    assert edit.location.line == found.location.line
    assert (edit.location.column, edit.location.end_column) == (found.location.end_column,) * 2


BUFFER = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.scale = width ** -0.5
        SET

    def forward(self, x):
        scores = self.query(x) @ self.key(x).mT * self.scale
        scores = scores.masked_fill(self.hidden[: x.size(1), : x.size(1)], float("-inf"))
        return scores.softmax(-1) @ self.value(x)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("self.hidden = TRIANGLE", 'self.register_buffer("hidden", TRIANGLE, persistent=False)'),
        ("self.hidden  =  TRIANGLE  # kept", 'self.register_buffer("hidden", TRIANGLE, persistent=False)  # kept'),
        ("self.hidden = None\n        self.hidden = TRIANGLE", None),  # the name is taken when the buffer comes
        ("self.hidden = self.other = TRIANGLE", None),
    ],
)
def test_a_mask_becomes_a_buffer_where_nothing_else_sets_it(before: str, after: str | None) -> None:
    triangle = "torch.ones(64, 64, dtype=torch.bool).triu(1)"
    source, wanted = (BUFFER.replace("SET", text or before).replace("TRIANGLE", triangle) for text in (before, after))
    assert mended(source, with_unsafe=False).content.decode() == wanted
