"""The one call of `F.scaled_dot_product_attention` that computes what a hand-written attention computes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isclose

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attn_guard.anatomy import Size
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.comparison import Comparison, compare
from attn_guard.probe.flow import LAYOUT, stacked
from attn_guard.probe.hygiene import device_and_dtype
from attn_guard.probe.masks import multiplier
from attn_guard.probe.returned import maps
from attn_guard.probe.tape import Op

# The length at which the two forms are timed.
LENGTH = 128


@dataclass(frozen=True)
class FusedCall:
    """A hand-written attention beside the fused call: ``mask`` is None, or (N, Tq, Tk) with True at keys that are seen,
    ``factor`` what the scores are multiplied by between the two products."""

    anatomy: Anatomy
    mask: Tensor | None
    factor: float

    @property
    def text(self) -> str:
        """The call to write, scale and mask included."""
        arguments = ["query", "key", "value"]
        if self.is_causal:
            arguments.append("is_causal=True")
        elif self.mask is not None:
            arguments.append("attn_mask=mask")
        total = self.anatomy.scale
        if total is not None and total.value is not None and not total.is_right:
            arguments.append(f"scale={total.value:.4g}")
        return f"F.scaled_dot_product_attention({', '.join(arguments)})"

    @property
    def is_causal(self) -> bool:
        if self.mask is None or self.mask.shape[-1] != self.mask.shape[-2]:
            return False
        return bool((self.mask == torch.ones_like(self.mask).tril()).all())

    @cached_property
    def difference(self) -> float:
        """The largest difference between the recorded context and what the fused call gives."""
        trace = self.anatomy.trace
        values = [trace.flow.tape.values[value].detach() for value in (trace.query, trace.key, trace.value)]
        query, key, value = (stacked(part).flatten(0, -3) for part in values)
        context = trace.flow.tape.values[trace.context.output].detach()
        fused = F.scaled_dot_product_attention(query, key.mT, value, attn_mask=self.mask, scale=self.factor)
        return float((fused - stacked(context).flatten(0, -3)).abs().max())

    @cached_property
    def comparison(self) -> Comparison:
        """Both forms on the module's device and dtype, with as many heads of the same width, at a usual length."""
        device, dtype = device_and_dtype(self.anatomy.module)
        heads, head_dim = self.anatomy.sizes[Size.HEADS], self.anatomy.sizes[Size.HEAD_DIM]
        generator = torch.Generator().manual_seed(self.anatomy.seed)
        inputs = tuple(torch.randn(1, heads, LENGTH, head_dim, generator=generator).to(device, dtype) for _ in range(3))
        masked = self.mask is not None
        return compare(_ByHand(masked), _Fused(masked), inputs, seed=self.anatomy.seed)


class _ByHand(nn.Module):
    """softmax(query · keyᵀ / √d) · value, step by step."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.masked = masked

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query @ key.mT * query.shape[-1] ** -0.5
        if self.masked:
            scores = scores.masked_fill(torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1), -torch.inf)
        context: Tensor = scores.softmax(dim=-1) @ value
        return context


class _Fused(nn.Module):
    """The same in one call."""

    def __init__(self, masked: bool) -> None:
        super().__init__()
        self.masked = masked

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=self.masked)


def fused_call(anatomy: Anatomy) -> FusedCall | None:
    """The fused call that a hand-written site can be replaced with; None where there is none.

    That is, where the weights are returned or changed, where a bias is added, or where the scale is not known.
    """
    trace = anatomy.trace
    if len({op.place for op in (trace.scores, trace.softmax, trace.context)}) < 2:
        return None  # already one call
    if trace.sideways or trace.flipped or trace.turned or trace.terms > 1 or trace.repeated or anatomy.scale is None:
        return None
    if any(op.name not in LAYOUT for op in trace.after) or any(maps(trace, trace.scores.output)):
        return None
    hiding = {found.op.index for found in anatomy.masks if found.fill is not None and found.fill <= _lowest(anatomy)}
    factor = 1.0
    incoming = trace.scores.output
    for op in trace.before:
        number = multiplier(trace.flow, op, incoming)
        if op.index not in hiding and op.name not in LAYOUT and number in (None, 1.0) and not _is_one(op):
            return None
        factor *= number or 1.0
        incoming = op.output
    blocked = anatomy.blocked if hiding else None
    if len(hiding) < len(anatomy.masks) or (blocked is not None and bool(blocked.all(dim=-1).any())):
        return None
    seen = None if blocked is None else ~blocked.flatten(0, -3)
    found = FusedCall(anatomy, seen, factor)
    size = trace.flow.tape.values[trace.context.output]
    close = isclose(found.difference, 0.0, abs_tol=64 * torch.finfo(size.dtype).eps * float(size.abs().max()))
    return found if close else None


def _lowest(anatomy: Anatomy) -> float:
    """A fill as low as this hides a key from the softmax for good."""
    return torch.finfo(anatomy.weights.dtype).min / 4 if anatomy.weights.dtype != torch.float32 else -1e9


def _is_one(op: Op) -> bool:
    """A product with the number 1, which changes nothing."""
    return op.name in {"mul", "div"} and len(op.args) > 1 and op.args[1] in (1, 1.0)
