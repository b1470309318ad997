"""One mistake gives one finding, whatever else it brings about: causal attention with a padding mask, broken in one
place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import attn_guard

D, H, HEAD_DIM = 20, 4, 5
LOWEST = torch.finfo(torch.float32).min


class Causal(nn.Module):
    """Causal self-attention in einsum with a weight per head; every part can be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Parameter(torch.randn(D, H, HEAD_DIM) * D**-0.5) for _ in range(3))
        self.out = nn.Linear(H * HEAD_DIM, D)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (torch.einsum("btm,mhd->bthd", x, weight) for weight in (self.w_q, self.w_k, self.w_v))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * HEAD_DIM**-0.5
        allowed = self.allowed(x.shape[1])
        if mask is not None:
            allowed = allowed & mask[:, None, None, :]
        context = torch.einsum("bhij,bjhd->bihd", self.hide(scores, allowed).softmax(-1), v)
        merged: Tensor = self.out(self.mix(context.flatten(2)))
        return merged

    def allowed(self, time: int) -> Tensor:
        return torch.ones(time, time, dtype=torch.bool).tril()

    def hide(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return torch.where(allowed, scores, LOWEST)

    def mix(self, merged: Tensor) -> Tensor:
        return merged


def replaced(name: str, part: Callable[..., Tensor]) -> nn.Module:
    torch.manual_seed(0)
    return type("Broken", (Causal,), {name: staticmethod(part)})()


def report(module: nn.Module) -> attn_guard.Report:
    x = torch.randn(3, 7, D, generator=torch.Generator().manual_seed(1))
    return attn_guard.check(module, x, causal=True, masks={"mask": "attend"}, preview=True)


def test_right() -> None:
    torch.manual_seed(0)
    assert list(report(Causal())) == []


@pytest.mark.parametrize(
    ("code", "name", "part"),
    [
        ("ATN215", "allowed", lambda time: torch.ones(time, time, dtype=torch.bool).tril(1)),
        ("ATN215", "allowed", lambda time: torch.ones(time, time, dtype=torch.bool).tril(-1)),
        ("ATN203", "hide", lambda scores, allowed: torch.where(allowed, scores, -LOWEST)),
        ("ATN203", "hide", lambda scores, allowed: scores.masked_fill(~allowed, 1e-9)),
        ("ATN405", "mix", lambda merged: merged - merged.mean(dim=1, keepdim=True)),
        ("ATN405", "mix", lambda merged: merged + merged.mean(1)[:, None]),
        ("ATN405", "mix", lambda merged: torch.nn.functional.group_norm(merged.mT, 1).mT),
    ],
)
def test_one_finding(code: str, name: str, part: Callable[..., Tensor]) -> None:
    found = [finding.code for finding in report(replaced(name, part)) if finding.fails]
    assert found == [code]


def test_means_over_features_hide_no_wrong_merge() -> None:
    def wrong(merged: Tensor) -> Tensor:
        batch, time, width = merged.shape
        heads = merged.view(batch, time, H, HEAD_DIM).transpose(1, 2).reshape(batch, time, width)
        return heads * torch.rsqrt(heads.pow(2).mean(-1, keepdim=True))

    assert [finding.code for finding in report(replaced("mix", wrong)) if finding.fails] == ["ATN304"]


class Padded(Causal):
    """The padding mask has a line of its own, before and after the softmax."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (torch.einsum("btm,mhd->bthd", x, weight) for weight in (self.w_q, self.w_k, self.w_v))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * HEAD_DIM**-0.5
        scores = self.hide(scores, self.allowed(x.shape[1]))
        if mask is not None:
            scores = self.pad(scores, mask[:, None, None, :])
        weights = scores.softmax(-1)
        if mask is not None:
            weights = self.pad_weights(weights, mask[:, None, None, :])
        merged: Tensor = self.out(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))
        return merged

    def pad(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(~mask, LOWEST)

    def pad_weights(self, weights: Tensor, mask: Tensor) -> Tensor:
        return weights


def discarded(scores: Tensor, mask: Tensor) -> Tensor:
    scores.masked_fill(~mask, LOWEST)
    return scores


def never_asked(scores: Tensor, mask: Tensor) -> Tensor:
    return scores


def zeroed(weights: Tensor, mask: Tensor) -> Tensor:
    return weights * mask


@pytest.mark.parametrize(
    ("codes", "parts"),
    [
        ([], {}),
        ([], {"pad_weights": zeroed}),
        (["ATN201"], {"pad": never_asked, "pad_weights": zeroed}),
        (["ATN202"], {"pad": discarded}),
        (["ATN212"], {"pad": never_asked}),
        (["ATN205"], {"pad": lambda scores, mask: scores.masked_fill(mask, LOWEST)}),
        (["ATN203"], {"pad": lambda scores, mask: scores.masked_fill(~mask, 0.0)}),
    ],
)
def test_a_padding_mask_beside_a_causal_one(codes: list[str], parts: dict[str, Callable[..., Tensor]]) -> None:
    torch.manual_seed(0)
    module = type("Broken", (Padded,), {name: staticmethod(part) for name, part in parts.items()})()
    assert [finding.code for finding in report(module) if finding.fails] == codes


@pytest.mark.parametrize(("used", "code"), [(True, "ATN202"), (False, "ATN212")])
def test_a_joined_mask_that_nothing_reads(used: bool, code: str) -> None:
    """Where the causal mask alone is used in its place, the join is to blame; where both are lost, the softmax is."""

    class JoinedInVain(Padded):
        def hide(self, scores: Tensor, allowed: Tensor) -> Tensor:
            self.triangle = allowed if used else allowed.clone()
            return super().hide(scores, allowed)

        def pad(self, scores: Tensor, mask: Tensor) -> Tensor:
            _ = self.triangle & mask
            return scores

    torch.manual_seed(0)
    assert [finding.code for finding in report(JoinedInVain()) if finding.fails] == [code]
