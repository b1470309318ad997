"""Copies the inputs of a call before it runs, since caches and masks may change in place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from attn_guard.probe.calling import Call

T = TypeVar("T")

_SHARED = (str, bytes, int, float, complex, bool, type(None), type, torch.dtype, torch.device, nn.Module)


class NotCopiedError(Exception):
    """An input is of a kind that cannot be replayed; the message says which."""


def copied(value: Any, done: dict[int, Any] | None = None) -> Any:
    """A copy of inputs, tensors included. What was one tensor stays one tensor: ``(x, x)`` gives ``(y, y)``.

    Raises `NotCopiedError` for tensors that carry no plain values (fake, meta, or of a subclass).
    """
    done = {} if done is None else done
    if isinstance(value, _SHARED):
        return value
    if id(value) not in done:
        done[id(value)] = _copied(value, done)
    return done[id(value)]


def with_copies(call: Call) -> Call:
    """A call whose caches and other objects may be written to; tensors alone are put right by whoever runs it."""
    given = (*call.args, *call.kwargs.values())
    if all(isinstance(value, Tensor | int | float | str | None) for value in given):
        return call
    try:
        args, kwargs = copied((call.args, call.kwargs))
    except NotCopiedError:
        return call
    return replace(call, args=args, kwargs=kwargs)


def each_changed(inputs: T, change: Callable[[Tensor], Tensor]) -> T:
    """Inputs with every tensor changed, each once: what was one tensor stays one tensor."""
    done: dict[int, Tensor] = {}

    def once(tensor: Tensor) -> Tensor:
        if id(tensor) not in done:
            done[id(tensor)] = change(tensor)
        return done[id(tensor)]

    changed: T = tree_map_only(Tensor, once, inputs)
    return changed


def double(tensor: Tensor) -> Tensor:
    """A floating tensor in float64, any other as it is."""
    return tensor.double() if tensor.is_floating_point() else tensor


def doubled(module: nn.Module) -> nn.Module:
    """A copy of a module that computes in float64; tensors kept in plain attributes are cast, too."""
    twin = copy.deepcopy(module).double()
    for part in twin.modules():
        for name, value in vars(part).items():
            if isinstance(value, Tensor):
                vars(part)[name] = double(value)
    return twin


def _copied(value: Any, done: dict[int, Any]) -> Any:
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, torch.fx.Proxy):
        raise NotCopiedError("an input is symbolic")
    if isinstance(value, tuple):
        items = [copied(item, done) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, list | set | frozenset):
        return type(value)(copied(item, done) for item in value)
    if type(value) is dict:
        return {key: copied(item, done) for key, item in value.items()}
    return _object(value, done)


def _tensor(value: Tensor) -> Tensor:
    if type(value) not in (Tensor, nn.Parameter):
        raise NotCopiedError(f"an input is a {type(value).__name__}")
    if value.is_meta:
        raise NotCopiedError("an input is on the meta device")
    with torch.no_grad():
        return value.detach().clone()


def _object(value: Any, done: dict[int, Any]) -> Any:
    """A cache, a model output, a configuration: the object anew, and what it holds likewise."""
    if callable(value) or not hasattr(value, "__dict__"):
        return value
    fresh = copy.copy(value)
    done[id(value)] = fresh
    for name, item in vars(value).items():
        fresh.__dict__[name] = copied(item, done)
    if isinstance(value, dict):
        for key, item in value.items():
            dict.__setitem__(fresh, key, copied(item, done))
    return fresh
