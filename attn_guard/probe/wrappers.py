"""Modules around modules, and modules of which a run shows nothing that can be relied on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

# Where their classes live, and why a run of them is not looked at.
QUANTISED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized")
SHARDED = ("torch.distributed",)


def original(module: nn.Module) -> nn.Module:
    """The module that `torch.compile` or a data-parallel wrapper was put around; any other module itself."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if type(module).__module__.startswith("torch.nn.parallel"):
            inner = getattr(module, "module", None)
        if not isinstance(inner, nn.Module):
            return module
        module = inner


def unreadable(module: nn.Module, inputs: Any = ()) -> str:
    """Why a module, or a call of it with these inputs, is not looked at; "" if it is."""
    if isinstance(module, torch.jit.ScriptModule):
        return "it is scripted, so that no operation has a line; check the module it was made from"
    for child in module.modules():
        if type(child).__module__.startswith(QUANTISED):
            return (
                f"{type(child).__name__} rounds by the range of all its inputs, so that every position depends on all"
            )
    for tensor in _tensors(module, inputs):
        reason = _holds_no_numbers(tensor)
        if reason:
            return reason
    return ""


def _tensors(module: nn.Module, inputs: Any) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()
    yield from (leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor))


def _holds_no_numbers(tensor: Tensor) -> str:
    kind = type(tensor)
    if isinstance(tensor, nn.UninitializedParameter | nn.UninitializedBuffer):
        return "a parameter has no shape before the first call; call the module once"
    if tensor.is_meta:
        return "parameters on the meta device hold no numbers"
    if kind.__module__.startswith(SHARDED):
        return (
            f"a {kind.__name__} holds only a part of its numbers on this process; check the module before it is sharded"
        )
    if tensor.is_nested or tensor.is_sparse or tensor.layout is not torch.strided:
        return f"a {'nested' if tensor.is_nested else 'sparse'} tensor has no positions that could be compared"
    if kind.__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return f"a {kind.__name__} computes in a way of its own"
    return ""
