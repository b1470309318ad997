"""Notes which modules the user's own code calls, and with what, so that they can be probed with real inputs.

`torch.nn.Module.__call__` is wrapped while the observer is installed. A global forward hook would be the documented
way, but it does not see keyword arguments before the call, and `torch.compile` warns about it.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from attn_guard.probe.copies import NotCopiedError, copied

PER_CLASS = 8  # configurations of one class that are probed; a property test may make hundreds

_ATTENTION_OF_TORCH = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
_PLAIN = (int, float, bool, str, type(None), torch.dtype)


@dataclass(frozen=True)
class Observation:
    """One call: the module, copies of its inputs, and whether it raised. ``key`` tells configurations apart."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    key: str
    raised: bool = False

    @property
    def name(self) -> str:
        return type(self.module).__qualname__.rpartition("<locals>.")[2]


class Observer:
    """Collects the calls that no other module made, one per class and configuration.

    >>> observer.install()
    >>> model(x)
    >>> observer.remove()
    >>> observer.take()
    """

    def __init__(self) -> None:
        self.notes: dict[str, None] = {}
        self._thread = threading.local()
        self._original: Callable[..., Any] | None = None
        self._wrapper: Callable[..., Any] | None = None
        self._promises = ""
        self._seen: dict[str, weakref.WeakValueDictionary[int, nn.Module]] = {}
        self._known: set[str] = set()
        self._raised: set[str] = set()
        self._per_class: Counter[type] = Counter()
        self._taken: list[Observation] = []

    def install(self, promises: str = "") -> None:
        """Begins to observe. The same configuration counts again when other promises are made about it."""
        self._promises = promises
        if self._original is None:
            self._original = nn.Module.__call__
            self._wrapper = self._wrapped(self._original)
            nn.Module.__call__ = self._wrapper  # type: ignore[method-assign]

    def remove(self) -> None:
        """Ends it, and leaves no trace."""
        if self._original is not None and nn.Module.__call__ is self._wrapper:
            nn.Module.__call__ = self._original  # type: ignore[method-assign]
        self._original = self._wrapper = None

    def take(self) -> list[Observation]:
        """What was observed since the last time."""
        taken, self._taken = self._taken, []
        return taken

    def take_notes(self) -> list[str]:
        """What could not be observed since the last time, and why."""
        notes, self.notes = list(self.notes), {}
        return notes

    def _wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        thread = self._thread

        def call(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if torch.compiler.is_compiling() or getattr(thread, "inside", False):
                return original(module, *args, **kwargs)
            return self._observed(original, module, args, kwargs)

        return call

    def _observed(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        __tracebackhide__ = True
        if _compiled(module):
            self.notes[f"{type(module).__qualname__}: compiled modules are not probed"] = None
            return self._aside(original, module, args, kwargs)
        self._thread.inside = True
        observation = self._note(module, args, kwargs)
        try:
            result = original(module, *args, **kwargs)
        except Exception:
            self._keep_raised(observation)
            raise
        finally:
            self._thread.inside = False
        if observation is not None:
            self._keep(observation)
        return result

    def _aside(
        self, original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The call without the wrapper in place, so that the compiler sees what it always sees."""
        __tracebackhide__ = True
        wrapper = nn.Module.__call__
        nn.Module.__call__ = original  # type: ignore[method-assign]
        try:
            return original(module, *args, **kwargs)
        finally:
            nn.Module.__call__ = wrapper  # type: ignore[method-assign]

    def _note(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Observation | None:
        """The call with its inputs as they are now, or None where it is known or cannot be probed."""
        seen = self._seen.setdefault(self._promises, weakref.WeakValueDictionary())
        if seen.get(id(module)) is module or not _may_attend(module):
            return None
        try:
            reason = _declined(module)
            if reason:
                raise NotCopiedError(reason)
            key = f"{configuration(module)} {self._promises}"
            if key in self._known:
                seen[id(module)] = module
                return None
            copied_args, copied_kwargs = copied((args, kwargs))
            return Observation(module, copied_args, copied_kwargs, key)
        except Exception as error:
            self.notes[f"{type(module).__qualname__}: not probed: {error}"] = None
            return None

    def _keep_raised(self, observation: Observation | None) -> None:
        if observation is not None and observation.key not in self._raised:
            self._raised.add(observation.key)
            self._taken.append(replace(observation, raised=True))

    def _keep(self, observation: Observation) -> None:
        module = observation.module
        self._seen[self._promises][id(module)] = module
        self._known.add(observation.key)
        self._per_class[type(module)] += 1
        if self._per_class[type(module)] <= PER_CLASS:
            self._taken.append(observation)
        else:
            self.notes[f"{observation.name}: only the first {PER_CLASS} configurations are probed"] = None


def configuration(module: nn.Module) -> str:
    """What tells this module from others of its class: shapes of its parameters, and plain attributes."""
    shapes = [(name, tuple(value.shape)) for name, value in module.named_parameters()]
    plain = [
        (path, name, value)
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if not name.startswith("_") and name != "training" and isinstance(value, _PLAIN)
    ]
    digest = hashlib.sha256(repr((shapes, plain)).encode()).hexdigest()[:12]
    return f"{type(module).__module__}.{type(module).__qualname__} {digest}"


def _may_attend(module: nn.Module) -> bool:
    """False for the layers of torch itself that hold no attention (Linear, losses, containers of none)."""
    if isinstance(module, _ATTENTION_OF_TORCH) or not type(module).__module__.startswith("torch.nn.modules"):
        return True
    return any(_may_attend(child) for child in module.children())


def _compiled(module: nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None


def _declined(module: nn.Module) -> str:
    """Why a call that is about to run cannot be probed; "" if it can."""
    if isinstance(module, torch.jit.ScriptModule):
        return "scripted"
    if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
        return "called while tracing"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "called inside a functorch transform"
    if _get_current_dispatch_mode() is not None:
        return "called under a dispatch mode"
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return "called while a CUDA graph is captured"
    weights = next(module.parameters(), None)
    if weights is not None and weights.is_meta:
        return "on the meta device"
    return ""
