"""The calls that the parts of a model receive while it runs: each part can then be looked at on the very call it gets.

Inputs are copied before the call, since caches and masks may change in place, and what is one tensor stays one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from attn_guard.contract import Contract
from attn_guard.probe.calling import Call
from attn_guard.probe.copies import NotCopiedError, copied
from attn_guard.probe.dimensions import is_batch_first
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.record import record


def calls_inside(
    module: nn.Module, call: Call, paths: Collection[str], seed: int = 0
) -> dict[str, Call | NotCopiedError]:
    """Path of a submodule → the first call that it receives when ``module`` is called.

    A submodule that is not called is left out. Where its inputs cannot be copied, the reason stands in place of the
    call. Nothing of the module is changed.
    """
    received: dict[str, Call | NotCopiedError] = {}

    def noting(path: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        def note(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if path not in received:
                received[path] = _received(part, args, kwargs, samples)

        return note

    given, samples = copied((call.args, call.kwargs)), _samples(call)
    with preserved(module, seed), ExitStack() as hooks:
        for path in paths:
            handle = module.get_submodule(path).register_forward_pre_hook(noting(path), prepend=True, with_kwargs=True)
            hooks.callback(handle.remove)
        record(module, *given)  # which also undoes what the run writes
    return received


def _received(
    part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], samples: int | None
) -> Call | NotCopiedError:
    try:
        with _disable_current_modes():
            own_args, own_kwargs = copied((args, kwargs))
    except NotCopiedError as error:
        return error
    features = next(
        (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.dim() == 3), None
    )
    turned = features is not None and features.shape[0] != samples and features.shape[1] == samples
    return Call(own_args, own_kwargs, "as its model calls it", not turned and is_batch_first(part, Contract()))


def _samples(call: Call) -> int | None:
    """How many samples a call holds, by its first tensor; None where they lie one after another."""
    first = next((leaf for leaf in tree_leaves((call.args, call.kwargs)) if isinstance(leaf, Tensor)), None)
    is_flat = first is None or first.dim() < 2 or (first.dim() == 2 and first.is_floating_point())
    return None if first is None or is_flat else first.shape[0 if call.batch_first else 1]
