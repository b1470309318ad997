"""Leaves the user's module and the process as they were found, whatever happens in between."""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def preserved(module: nn.Module, seed: int = 0) -> Iterator[None]:
    """Inside: evaluation mode, no gradients, seeded random streams. Afterwards: everything as before.

    Kept are training modes, attributes and the lists, dicts and sets in them, the tables of parameters, buffers and
    submodules, random streams of torch, numpy and Python, the gradient mode and the default dtype. The numbers in
    tensors are kept by the recorder, which undoes writes.
    """
    attributes = {child: _attributes(child) for child in module.modules()}
    collections: dict[int, tuple[Any, Any]] = {}
    for child in attributes:
        _keep_contents((value for name, value in vars(child).items() if name not in _TABLES), collections)
    dtype = torch.get_default_dtype()
    with _same_randomness(module), torch.no_grad():
        seed_streams(module, seed)
        try:
            for child in attributes:
                child.training = False
            yield
        finally:
            for child, kept in attributes.items():
                _restore(child, kept)
            for collection, contents in collections.values():
                if collection or contents:  # most are empty, and stay so
                    _refill(collection, contents)
            torch.set_default_dtype(dtype)


_TABLES = ("_parameters", "_buffers", "_modules")
_COLLECTIONS = (list, dict, set, deque, OrderedDict, defaultdict)


def _attributes(module: nn.Module) -> dict[str, Any]:
    kept = dict(vars(module))
    for table in _TABLES:
        kept[table] = dict(kept[table])
    return kept


def _restore(module: nn.Module, kept: dict[str, Any]) -> None:
    present = vars(module)
    for table in _TABLES:
        present[table].clear()
        present[table].update(kept[table])
    for name in present.keys() - kept.keys():
        del present[name]
    for name, value in kept.items():
        if name not in _TABLES and present.get(name) is not value:
            present[name] = value


def _keep_contents(values: Iterable[Any], found: dict[int, tuple[Any, Any]]) -> None:
    """Adds every list, dict or set among ``values``, and those inside them, with a copy of what it holds."""
    for value in values:
        if type(value) in _COLLECTIONS and id(value) not in found:
            found[id(value)] = (value, value.copy())
            if value:
                _keep_contents(value.values() if isinstance(value, dict) else value, found)


def _refill(collection: Any, contents: Any) -> None:
    unchanged = len(collection) == len(contents) and all(map(is_, collection, contents))
    if unchanged and (not isinstance(collection, dict) or all(map(is_, collection.values(), contents.values()))):
        return
    collection.clear()
    collection.extend(contents) if isinstance(collection, list | deque) else collection.update(contents)


@contextmanager
def _same_randomness(module: nn.Module) -> Iterator[None]:
    python = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else None
    with torch.random.fork_rng(devices=sorted(device.index or 0 for device in _devices(module, "cuda"))):
        try:
            yield
        finally:
            random.setstate(python)
            if numpy is not None and numpy_state is not None:
                numpy.random.set_state(numpy_state)


def seed_streams(module: nn.Module, seed: int) -> None:
    """Seeds the streams that a module draws from.

    `torch.manual_seed` is slower, and would also seed devices that are not in use yet, at their first use.
    """
    torch.default_generator.manual_seed(seed)
    for device in _devices(module, "cuda"):
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    if torch.backends.mps.is_available() and _devices(module, "mps"):
        torch.mps.manual_seed(seed)


def _devices(module: nn.Module, kind: str) -> set[torch.device]:
    """The devices of one kind that hold parameters or buffers."""
    if kind == "cuda" and not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return set()
    tensors = (*module.parameters(), *module.buffers())
    return {tensor.device for tensor in tensors if tensor.device.type == kind}


def other_streams() -> object:
    """Where the random streams of Python and numpy stand."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return random.getstate()
    kind, keys, *rest = numpy.random.get_state()
    return random.getstate(), kind, keys.tobytes(), rest


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, torch computes on one thread: on tensors this small, handing work to others costs more than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def device_and_dtype(module: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Where and in which floating dtype a module computes; those of new tensors for one without parameters."""
    tensors: list[Tensor] = [*module.parameters(), *module.buffers()]
    floating = next((tensor for tensor in tensors if tensor.is_floating_point()), None)
    if floating is None:
        device = tensors[0].device if tensors else torch.get_default_device()
        return device, torch.get_default_dtype()
    return floating.device, floating.dtype
