"""Columns and heads that nothing reads, and those that are read in an unusual way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import attn_guard
from attn_guard.findings import Finding, Severity
from tests.probe.modules import HEAD_DIM, D, H, Sdpa, features, seeded
from tests.probe.silent_modules import Encoder, Gated, LoopOverHeads


def failing(module: nn.Module, *args: Tensor) -> list[Finding]:
    return [finding for finding in attn_guard.check(module, args or None, preview=True) if finding.fails]


class Remainder(nn.Module):
    """A width of 22 cut into three heads of 7, by one projection or by three."""

    def __init__(self, fused: bool, loop: bool) -> None:
        super().__init__()
        self.loop, self.out = loop, nn.Linear(21, 22)
        self.projections = nn.ModuleList([nn.Linear(22, 66)] if fused else [nn.Linear(22, 22) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        parts: list[Tensor] = [part(x) for part in self.projections]
        q, k, v = parts if len(parts) == 3 else parts[0].chunk(3, dim=-1)
        if self.loop:
            cuts = [slice(7 * head, 7 * head + 7) for head in range(3)]
            context = torch.cat(
                [(q[..., cut] @ k[..., cut].mT * 7**-0.5).softmax(-1) @ v[..., cut] for cut in cuts], dim=-1
            )
        else:
            q, k, v = (part[..., :21].view(*x.shape[:2], 3, 7).transpose(1, 2) for part in (q, k, v))
            context = ((q @ k.mT * 7**-0.5).softmax(-1) @ v).transpose(1, 2).flatten(2)
        merged: Tensor = self.out(context)
        return merged


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_a_remainder_that_is_dropped(fused: bool, loop: bool) -> None:
    found = failing(seeded(Remainder, fused, loop), features(width=22))
    assert {finding.code for finding in found} == {"ATN301"}
    width = 66 if fused else 22
    assert found[0].message.endswith(f"3 heads; {width // 22} of the projection's {width} columns are dropped")
    assert found[0].found == str(width - width // 22)


class ContextOf(Encoder):
    """Heads of the context put together in any way."""

    def __init__(self, keep: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.keep = keep

    def merge(self, context: Tensor) -> Tensor:
        return super().merge(self.keep(context))


@pytest.mark.parametrize(("batch", "time"), [(2, 5), (1, 3), (3, 3), (3, 7)])
@pytest.mark.parametrize(
    ("keep", "dead"),
    [
        (lambda context: context[:, [0, 1, 1]], 1),
        (lambda context: torch.cat((context[:, :2], context[:, :1]), dim=1), 1),
        (lambda context: context[:, :1].expand(-1, H, -1, -1), 2),
    ],
)
def test_heads_that_are_left_out(keep: Callable[[Tensor], Tensor], dead: int, batch: int, time: int) -> None:
    (found,) = failing(seeded(ContextOf, keep), features(batch, time))
    assert (found.code, found.severity) == ("ATN309", Severity.WARNING)
    assert found.message == f"{dead} of 3 heads have no influence on the output"


@pytest.mark.parametrize(
    "keep",
    [
        lambda context: context[:, torch.tensor([2, 0, 1])],
        lambda context: context * torch.zeros(H, 1, 1),
        lambda context: context.mean(dim=1, keepdim=True).expand(-1, H, -1, -1),
        lambda context: torch.nn.functional.pad(context, (0, 1))[..., :-1],
    ],
)
def test_heads_that_are_read(keep: Callable[[Tensor], Tensor]) -> None:
    assert failing(seeded(ContextOf, keep)) == []


class OneHeadOfValues(Encoder):
    """The value of the first head for all of them."""

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().heads(x)
        return q, k, v[:, :1].expand(-1, H, -1, -1)


class HalfAKey(Encoder):
    """Query and key without their last columns."""

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().heads(x)
        return q[..., :5], k[..., :5], v

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT * 5**-0.5


def test_columns_that_nothing_reads() -> None:
    (found,) = failing(seeded(OneHeadOfValues))
    assert (found.code, found.found) == ("ATN309", str(HEAD_DIM))
    assert {finding.code for finding in failing(seeded(HalfAKey))} == {"ATN309"}


class Beside(Encoder):
    """One projection gives query, key, value, and a gate that something else reads."""

    def __init__(self) -> None:
        super().__init__()
        self.all = nn.Linear(D, 4 * D)

    def forward(self, x: Tensor) -> Tensor:
        *parts, gate = self.all(x).chunk(4, dim=-1)
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in parts)
        return self.merge(self.weigh(self.scores(q, k)) @ v) * gate.sigmoid()


class FirstQueryOnly(Encoder):
    """Only the first position asks."""

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().heads(x)
        return q[:, :, :1], k, v


class TransposedInput(nn.Module):
    """(batch, D, time): the projection is a product and a sum, since its input does not lie in order."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Encoder()

    def forward(self, x: Tensor) -> Tensor:
        attended: Tensor = self.attention(x.mT)
        return attended.mT


@pytest.mark.parametrize(
    "build", [Beside, FirstQueryOnly, Gated, LoopOverHeads, lambda: Sdpa(key_heads=2, width=28, heads=4)]
)
def test_columns_that_are_read(build: Callable[[], nn.Module]) -> None:
    module = seeded(build)
    assert [finding.code for finding in failing(module)] == []


def test_an_input_that_does_not_lie_in_order() -> None:
    assert failing(seeded(TransposedInput), torch.randn(2, D, 5)) == []
    module = seeded(TransposedInput)
    module.attention = seeded(OneHeadOfValues)
    assert [finding.code for finding in failing(module, torch.randn(2, D, 5))] == ["ATN309"]


class Silenced(Encoder):
    """The last head is set to zero, by its weights or by its context."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.keep: Tensor
        self.register_buffer("keep", torch.tensor([1.0, 1.0, 0.0])[:, None, None])
        self.gate = nn.Parameter(self.keep.clone())

    def forward(self, x: Tensor, head_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.heads(x)
        weights = self.weigh(self.scores(q, k))
        if self.way == "weights":
            keep = torch.ones(H, 1, 1)
            keep[-1] = 0
            weights = weights * keep
        if self.way == "buffer":
            weights = weights * self.keep
        if self.way == "argument" and head_mask is not None:
            weights = weights * head_mask
        if self.way == "router":
            weights = weights * (weights.amax((-2, -1), keepdim=True) > weights.amax((-3, -2, -1), keepdim=True) - 1e-9)
        context = weights @ v
        if self.way == "context":
            context[:, -1] = 0
        if self.way == "product":
            context = context * torch.tensor([1.0, 0.0, 1.0])[:, None, None]
        if self.way == "gate":
            context = context * self.gate
        return self.merge(context)


@pytest.mark.parametrize("way", ["weights", "context", "product"])
def test_a_head_that_the_code_sets_to_zero(way: str) -> None:
    (found,) = failing(seeded(Silenced, way), features())
    assert (found.code, found.message) == ("ATN309", "1 of 3 heads have no influence on the output")


@pytest.mark.parametrize("way", ["none", "buffer", "argument", "router", "gate"])
def test_heads_that_are_pruned_or_gated_on_purpose(way: str) -> None:
    mask = (torch.tensor([1.0, 1.0, 0.0])[:, None, None],) if way == "argument" else ()
    assert failing(seeded(Silenced, way), features(), *mask) == []
