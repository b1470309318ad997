"""Queries that a mask leaves without any key: what becomes of their rows, and of the gradient.

A softmax over nothing but -inf is NaN, and so is everything it is multiplied with: 0 · NaN is NaN, so that the row of a
padded token spreads to real ones in the next layer, and to all parameters in the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

from attn_guard.findings import Location
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.calling import is_of_torch
from attn_guard.probe.copies import NotCopiedError, copied
from attn_guard.probe.deliveries import Delivery
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.record import unfused
from attn_guard.probe.replay import Replay, ReplayError

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


@dataclass(frozen=True)
class EmptyRows:
    """Queries without any key whose weights are not numbers. ``why`` says which they are, ``reach`` what they spoil.

    ``severe`` says that real tokens or gradients are not numbers, ``rare`` that a whole sample has to be padding.
    """

    location: Location
    why: str
    reach: str
    severe: bool
    rare: bool = False


def empty_rows(xray: XRay) -> Iterator[EmptyRows]:
    """What becomes of queries without a key: in the call, in padded ones, and in one where a sample is all padding."""
    yield from _in_run(xray, None, "masks hide every key of a query")
    for delivery in xray.handed.over:
        if delivery.meaning != "additive" and delivery.keep is not None:
            yield from _in_run(delivery.seen, delivery, "padding on the left hides every key that a query may see")
            if xray.promised(delivery.name):
                yield from _with_empty_sample(delivery)


def _in_run(seen: XRay, delivery: Delivery | None, why: str) -> Iterator[EmptyRows]:
    for anatomy in seen.sites:
        weights = seen.tape.values[anatomy.trace.softmax.output]
        blocked = anatomy.blocked
        if blocked is None or _is_of_torch(anatomy) or not weights.isnan().any():
            continue
        if not blocked.all(dim=-1).any():
            continue
        results = [seen.tape.values[value] for value in seen.tape.results()]
        found = _judged(seen, anatomy, why, results, None if delivery is None else delivery.keep)
        if found is not None:
            yield found
            return


def _with_empty_sample(delivery: Delivery) -> Iterator[EmptyRows]:
    """The first sample is all padding: replayed, since only the mask differs."""
    seen = delivery.seen
    tape, source = seen.tape, seen.tape.inputs().get(delivery.name)
    if source is None or delivery.keep is None:
        return
    own = [anatomy for anatomy in seen.sites if not _is_of_torch(anatomy)]
    softmaxes = [anatomy.trace.softmax.output for anatomy in own]
    mask = tape.values[source].clone()
    axis = next(delivery.axes.index(name) for name in "bn" if name in delivery.axes)
    first = mask.narrow(axis, 0, mask.shape[axis] // len(delivery.allowed))
    first.fill_(delivery.meaning == "ignore")
    try:
        again = Replay(tape, [source], [*softmaxes, *tape.results()])({source: mask})
    except ReplayError:
        return
    for anatomy in own:
        if again[anatomy.trace.softmax.output].isnan().any():
            keep = delivery.keep.clone()
            keep[0] = False
            results = [again[value] for value in tape.results()]
            call = seen.call.with_argument(seen.module, delivery.name, mask)
            found = _judged(
                seen, anatomy, "a sample that is all padding has no key", results, keep, call.args, call.kwargs
            )
            if found is not None:
                yield replace(found, rare=True)
            return


def _judged(
    seen: XRay,
    anatomy: Anatomy,
    why: str,
    results: list[Tensor],
    keep: Tensor | None,
    args: tuple[object, ...] | None = None,
    kwargs: dict[str, object] | None = None,
) -> EmptyRows | None:
    spoilt = [result for result in results if result.is_floating_point() and result.isnan().any()]
    location = _place(anatomy)
    if not spoilt:
        unsound = _gradient_is_nan(seen, args or seen.call.args, seen.call.kwargs if kwargs is None else kwargs)
        return EmptyRows(location, why, "the output is cleaned, the gradient is NaN", True) if unsound else None
    real = any(_reaches_real_tokens(result, keep, seen.call.batch_first) for result in spoilt)
    reach = (
        "NaN at real tokens" if real else "NaN at padded tokens, which spreads in the next layer and in the gradient"
    )
    return EmptyRows(location, why, reach, real)


def _reaches_real_tokens(result: Tensor, keep: Tensor | None, batch_first: bool) -> bool:
    if keep is None:
        return True
    rows = keep if batch_first else keep.t()
    if result.shape[:2] == rows.shape:
        return bool(result[rows.to(result.device)].isnan().any())
    batch = 0 if batch_first or result.dim() < 2 else 1
    if result.shape[batch] != len(keep):
        return False
    filled = keep.any(dim=1).nonzero().flatten().to(result.device)
    return len(filled) < len(keep) and bool(result.index_select(batch, filled).isnan().any())


def _place(anatomy: Anatomy) -> Location:
    masks = anatomy.masks
    return masks[-1].op.location if masks else anatomy.trace.softmax.location


def _is_of_torch(anatomy: Anatomy) -> bool:
    """Whether a layer of torch computes the weights: its rows without a key are its own business."""
    owner = anatomy.module.get_submodule(anatomy.trace.softmax.module)
    return is_of_torch(owner)


def _gradient_is_nan(seen: XRay, args: tuple[object, ...], kwargs: dict[str, object]) -> bool:
    """Whether a parameter's gradient is NaN, that of all outputs' sum; False where no gradient can be had."""
    module = seen.module
    try:
        with preserved(module, seen.seed), unfused(), torch.enable_grad():
            weights = {
                name: value.detach().clone() for name, value in (*module.named_parameters(), *module.named_buffers())
            }
            trained = [weights[name].requires_grad_() for name, _ in module.named_parameters()]
            result = functional_call(module, weights, *copied((args, kwargs)))
            outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.requires_grad]
            total = torch.stack([output.double().sum() for output in outputs]).sum()
            gradients = torch.autograd.grad(total, trained, allow_unused=True)
    except (RuntimeError, TypeError, ValueError, NotCopiedError):
        return False
    return any(gradient is not None and bool(gradient.isnan().any()) for gradient in gradients)
