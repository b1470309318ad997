"""One way of decoding with a module: calls of its copies, chunk by chunk, with the cache handed on from each to the
next.

Every run works on a copy of the module that shares its parameters and nothing else.
"""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attn_guard.probe.caches import cache_after, holds
from attn_guard.probe.calling import Call, parameters_of
from attn_guard.probe.chunks import Chunks
from attn_guard.probe.copies import copied, doubled
from attn_guard.probe.hygiene import seed_streams
from attn_guard.probe.record import record
from attn_guard.probe.streams import Stream
from attn_guard.probe.tape import Tape

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay


@dataclass(frozen=True)
class Run:
    """One call: what it returned, or what it raised."""

    result: Any = None
    failure: Exception | None = None


class _Unobserved(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls made inside are the probe's own: observers and guards leave calls under a dispatch mode alone."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


@dataclass(frozen=True)
class Decoder:
    """One way of decoding with a module: where its cache is, and how a chunk of the recorded call is cut.

    ``cache`` names the argument that takes the cache (None: the module keeps it), ``flag`` the one that turns it on,
    ``begin`` the one that says where the chunk begins, ``places`` one that takes the positions of the chunk.
    """

    xray: XRay
    stream: Stream
    main: str
    cache: str | None
    flag: str | None
    begin: str | None
    places: str | None = None
    exact: bool = False

    @cached_property
    def chunks(self) -> Chunks:
        return Chunks(self.xray, self.stream, self.main, self.exact)

    @property
    def total(self) -> int:
        """How many positions are decoded."""
        return self.chunks.total

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the full pass, by name."""
        return self.chunks.arguments

    def module(self) -> nn.Module:
        """A copy with state of its own and, unless it is in float64, the parameters of the original."""
        original = self.xray.module
        if not self.exact:
            return copy.deepcopy(original, {id(parameter): parameter for parameter in original.parameters()})
        return doubled(original)

    def full(self, end: int | None = None) -> Run:
        """The pass without a cache over the positions up to ``end``."""
        return self.run(self.module(), self.cut(0, end or self.total, cached=False))

    def steps(self, lengths: Sequence[int]) -> Iterator[tuple[int, int, Run]]:
        """Decodes chunks of these lengths one after the other. Ends where the module returns no cache."""
        module, state, start = self.module(), self._empty(), 0
        for length in lengths:
            run = self.run(module, self._with(state, start, start + length))
            yield start, start + length, run
            state = self._returned(run, state)
            if run.failure is not None or (self.cache is not None and state is None):
                return
            start += length

    def before(self, lengths: Sequence[int], start: int, end: int) -> tuple[nn.Module, dict[str, Any]]:
        """A copy that has decoded the chunks before ``start``, and the arguments of the next one."""
        module, state, done = self.module(), self._empty(), 0
        for length in lengths:
            if done >= start:
                break
            state = self._returned(self.run(module, self._with(state, done, done + length)), state)
            done += length
        return module, self._with(state, start, end)

    def _with(self, state: Any, start: int, end: int) -> dict[str, Any]:
        chunk = self.cut(start, end, cached=True)
        return chunk if self.cache is None else {**chunk, self.cache: state}

    def _returned(self, run: Run, state: Any) -> Any:
        return None if self.cache is None else cache_after(run.result, self.cache, state, self.xray.promised("cache"))

    def _empty(self) -> Any:
        """What the cache argument is first given: what the call had if that is empty, or what a layer of transformers
        asks for."""
        if self.cache is None:
            return None
        given = copied(self.arguments.get(self.cache))
        transformers = sys.modules.get("transformers")
        of_features = self.arguments[self.main].is_floating_point()
        if given is None and of_features and transformers and self._asks_for(transformers.Cache):
            return transformers.DynamicCache()
        return None if holds(given) else given

    def _asks_for(self, kind: type) -> bool:
        """Whether the cache argument is annotated with a class, or one that is derived from it."""
        module = self.xray.module
        parameter = parameters_of(module).get(self.cache or "")
        annotation: Any = parameter.annotation if parameter else None
        if isinstance(annotation, str):  # not evaluated yet: the names mean what they mean in the module's file
            known = getattr(inspect.unwrap(type(module).forward), "__globals__", {})
            options = [known.get(name) for name in re.findall(r"\w+", annotation)]
        else:
            options = [annotation, *get_args(annotation)]
        return any(isinstance(option, type) and issubclass(option, kind) for option in options)

    def output(self, run: Run, length: int) -> Tensor | None:
        """The returned tensor that holds one row per position, time first."""
        shape = list(self.stream.leading)
        shape[self.stream.time_axis] = length
        for found in tree_leaves(run.result):
            if isinstance(found, Tensor) and list(found.shape[: len(shape)]) == shape and found.dim() > len(shape):
                return found.detach().clone().movedim(self.stream.time_axis, 0) if found.is_floating_point() else None
        return None

    def run(self, module: nn.Module, arguments: dict[str, Any]) -> Run:
        seed_streams(self.xray.module, self.xray.seed)
        args, kwargs = _as_call(module, arguments)
        with torch.no_grad(), _Unobserved():  # type: ignore[no-untyped-call]
            try:
                return Run(module(*args, **kwargs))
            except Exception as error:
                return Run(failure=error)

    def recorded(self, module: nn.Module, arguments: dict[str, Any]) -> Tape:
        seed_streams(self.xray.module, self.xray.seed)
        args, kwargs = _as_call(module, arguments)
        return record(module, args, kwargs, Call(args, kwargs, "decoding").names(module), stateful=True)

    def cut(self, start: int, end: int, *, cached: bool) -> dict[str, Any]:
        """The arguments for positions ``start`` to ``end`` after ``start`` others."""
        found = self.chunks.cut(start, end, without=None if cached else self.cache)
        if self.flag is not None:
            found[self.flag] = cached
        if self.cache is not None and cached:
            found.setdefault(self.cache, None)
        if self.begin is not None:
            found[self.begin] = self._beginning(start, end)
        if self.places is not None:
            found[self.places] = self.chunks.numbers(start, end)
        return found

    def _beginning(self, start: int, end: int) -> Any:
        given = self.arguments.get(self.begin or "")
        if isinstance(given, Tensor) and given.dim() > 0:
            return torch.arange(start, end, device=given.device).expand(*given.shape[:-1], -1)
        return torch.tensor(start, device=given.device) if isinstance(given, Tensor) else start


def _as_call(module: nn.Module, arguments: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by name, those that can only be given by position first."""
    known = parameters_of(module)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, value in arguments.items():
        kind = known[name].kind if name in known else inspect.Parameter.KEYWORD_ONLY
        if kind is inspect.Parameter.VAR_POSITIONAL:
            args.extend(value)
        elif kind is inspect.Parameter.POSITIONAL_ONLY or name.isdigit():
            args.append(value)
        else:
            kwargs[name] = value
    return tuple(args), kwargs
