"""A call of a module: its arguments, how they were chosen, and how they bind to the parameters of ``forward``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attn_guard.contract import Contract, MaskMeaning
from attn_guard.probe.dimensions import is_batch_first

CACHES = (
    "past_key_values",
    "past_key_value",
    "layer_past",
    "past_kv",
    "past_kvs",
    "kv_cache",
    "kv_caches",
    "cache",
    "caches",
    "past",
    "incremental_state",
)
STARTS = ("start_pos", "input_pos", "cache_position", "start_position", "position_offset", "pos_offset", "offset")


@dataclass(frozen=True)
class Call:
    """Arguments to call a module with, and how they were chosen. ``batch_first`` says that batches are the first
    axis."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    how: str
    batch_first: bool = True

    def names(self, module: nn.Module) -> dict[int, str]:
        """id of each tensor argument → the name of its parameter."""
        found: dict[int, str] = {}
        for name, value in bound(module, self).items():
            for position, tensor in enumerate(_tensors(value)):
                found.setdefault(id(tensor), name if tensor is value else f"{name}.{position}")
        return found

    def with_argument(self, module: nn.Module, name: str, value: Any) -> Call:
        """The same call with one parameter given another value."""
        parameters = list(parameters_of(module))
        position = parameters.index(name) if name in parameters else len(self.args)
        if position < len(self.args):
            return replace(self, args=(*self.args[:position], value, *self.args[position + 1 :]))
        return replace(self, kwargs={**self.kwargs, name: value})

    def __str__(self) -> str:
        parts = [_shown(value) for value in self.args]
        parts += [f"{name}={_shown(value)}" for name, value in self.kwargs.items()]
        return f"({', '.join(parts)})"


def given(args: Any, kwargs: Mapping[str, Any] | None, contract: Contract, module: nn.Module) -> Call:
    """The call that the user asked for."""
    positional = () if args is None else tuple(args) if isinstance(args, tuple | list) else (args,)
    return Call(positional, dict(kwargs or {}), "as given", is_batch_first(module, contract))


def as_mask(keep: Tensor, meaning: MaskMeaning, dtype: torch.dtype) -> Tensor:
    """A bool tensor of what may be attended to, in the form that a mask argument of this meaning takes."""
    if meaning == "ignore":
        return ~keep
    if meaning == "attend":
        return keep
    return torch.zeros(keep.shape, dtype=dtype, device=keep.device).masked_fill(~keep, -torch.inf)


def known_meaning(name: str) -> MaskMeaning | None:
    """What True means in a mask argument of this name, where the name follows torch.nn."""
    return "ignore" if name.endswith("key_padding_mask") else None


def is_of_torch(module: nn.Module) -> bool:
    """Whether a module is a layer of torch itself."""
    return type(module).__module__.startswith("torch.nn.")


def bound(module: nn.Module, call: Call) -> dict[str, Any]:
    """Parameter name → value of a call; positions where the signature cannot tell."""
    signature = _signature(module)
    try:
        found = signature.bind(*call.args, **call.kwargs).arguments if signature is not None else {}
    except TypeError:
        signature = None
    if signature is None:
        return {**{str(position): value for position, value in enumerate(call.args)}, **call.kwargs}
    flat: dict[str, Any] = {}
    for name, value in found.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            flat.update(value)
        else:
            flat[name] = value
    return flat


def arguments(module: nn.Module, call: Call) -> dict[str, Any]:
    """Parameter name → value of a call, defaults included."""
    defaults = {p.name: p.default for p in parameters_of(module).values() if p.default is not p.empty}
    return {**defaults, **bound(module, call)}


def parameters_of(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    """The parameters of a module's ``forward``; none where it has no signature."""
    signature = _signature(module)
    return {} if signature is None else signature.parameters


def _signature(module: nn.Module) -> inspect.Signature | None:
    """That of ``forward``; of a wrapper that takes whatever comes, that of the one module which it wraps."""
    try:
        signature = _signature_of(module.forward)
    except (TypeError, ValueError):
        return None
    children = list(module.children())
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    takes_anything = all(parameter.kind in variable for parameter in signature.parameters.values())
    if signature.parameters and takes_anything and len(children) == 1:
        return _signature(children[0])
    return signature


# By function, since each check asks a few dozen times.
_SIGNATURES: WeakKeyDictionary[FunctionType, inspect.Signature] = WeakKeyDictionary()


def _signature_of(forward: Callable[..., Any]) -> inspect.Signature:
    function = getattr(forward, "__func__", None)
    if not isinstance(function, FunctionType):
        return inspect.signature(forward)
    known = _SIGNATURES.get(function)
    if known is None:
        known = _SIGNATURES[function] = inspect.signature(forward)
    return known


def mask_parameters(module: nn.Module) -> list[str]:
    return [name for name in parameters_of(module) if "mask" in name]


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind}{list(value.shape)}"
    return repr(value) if isinstance(value, int | float | str | bool | type(None)) else type(value).__name__
