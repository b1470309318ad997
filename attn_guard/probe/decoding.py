"""Decodes with a cache, step by step and in chunks, and compares with the full pass.

Only where a cache is declared, or plainly recognised: an argument of a usual name that takes what the module returns
(``past_key_values``, ``layer_past``, ``kv_cache`` …), or state of its own that a call with ``start_pos``, ``input_pos``
or ``use_cache`` fills. Every run works on a copy of the module that shares its parameters and nothing else.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from attn_guard.findings import Location
from attn_guard.probe.alignment import Alignment
from attn_guard.probe.anatomist import Anatomy
from attn_guard.probe.calling import CACHES, STARTS, Call, bound, parameters_of
from attn_guard.probe.copies import NotCopiedError, copied, double, doubled
from attn_guard.probe.flow import LAYOUT, Flow
from attn_guard.probe.hygiene import preserved
from attn_guard.probe.order import Order
from attn_guard.probe.places import raised_at
from attn_guard.probe.record import record
from attn_guard.probe.short_caches import ShortCache, short_cache
from attn_guard.probe.sites import traces
from attn_guard.probe.streams import Stream
from attn_guard.probe.tape import Op, Tape

if TYPE_CHECKING:
    from attn_guard.probe.xray import XRay

FLAGS = ("use_cache", "return_cache", "use_kv_cache", "return_kv_cache", "use_kv")
POSITIONS = ("position_ids", "positions", "pos_ids", "input_pos", "position", "pos")
MOST_WINDOW = 64

# Relative to the largest number of the output: rounding of another order of summation stays below.
SINGLE = 1e-4
DOUBLE = 1e-6
UNSURE = 1e-2


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
class Mismatch:
    """Positions ``start`` to ``end`` (exclusive), decoded after ``start`` cached ones, differ from the full pass.

    ``difference`` is the largest one, ``spread`` the largest number of the full pass; ``error`` is what decoding
    raised, if it did.
    """

    decoder: Decoder
    start: int
    end: int
    lengths: tuple[int, ...]
    difference: float
    spread: float
    error: Exception | None = None

    @cached_property
    def alignment(self) -> Alignment:
        """The full pass and the chunk, both recorded."""
        decoder = self.decoder
        with preserved(decoder.xray.module, decoder.xray.seed):
            full = decoder.recorded(decoder.module(), decoder.cut(0, decoder.total, cached=False))
            part = decoder.recorded(*decoder.before(self.lengths, self.start, self.end))
        return Alignment(full, part, self.start, self.end, decoder.total)

    @cached_property
    def misaligned(self) -> Order | None:
        """The first attention of the chunk whose queries see what the first ones of the sequence would: a triangle that
        starts at the top left."""
        if self.error is not None or not self.start:
            return None
        xray = self.decoder.xray
        triangle = torch.ones(self.end - self.start, self.end, dtype=torch.bool).tril()
        for trace in traces(Flow.of(self.alignment.part)):
            order = Order(Anatomy(trace, xray.module, xray.contract.scale, xray.seed))
            seen = order.seen
            if seen is not None and seen.shape[1:] == triangle.shape and bool((seen == triangle).all()):
                return order
        return None

    @property
    def schedule(self) -> str:
        """How the tokens were handed over: "1 + 1 + 1"."""
        return " + ".join(str(length) for length in self.lengths)

    @property
    def what(self) -> str:
        """Which outputs: "output 3", "outputs 2 to 4"."""
        return f"outputs {self.start} to {self.end - 1}" if self.end - self.start > 1 else f"output {self.start}"

    @property
    def when(self) -> str:
        """At which step: "with 3 positions in the cache"."""
        return f"with {self.start or 'no'} position{'' if self.start == 1 else 's'} in the cache"

    @cached_property
    def short(self) -> ShortCache | None:
        """What makes the cache shorter than what was decoded; None where it is not."""
        return short_cache(self)

    @property
    def location(self) -> Location:
        """Where a cache is made that is too short, or else the first operation of the chunk that computes something
        else than the full pass; of a product with keys from the cache, what put them together with the new ones."""
        if self.short is not None and self.short.location is not None:
            return self.short.location
        found = self.alignment.first_difference
        if found is None:
            return Location("<probe>", 0)
        return (self._joined(found[0]) if found[0] is found[1] else found[1]).location

    def _joined(self, op: Op) -> Op:
        """The operation that joins the cache with what an operation reads; itself where there is none."""
        tape, joined = self.alignment.part, op
        for read in op.inputs:
            maker = tape.maker(read)
            while maker is not None and maker.name in LAYOUT and maker.name != "cat":
                maker = tape.maker(maker.inputs[0])
            if maker is not None and maker.name == "cat" and self.alignment.counterpart(maker) is None:
                joined = maker
        return joined

    @property
    def failed_at(self) -> Location:
        return raised_at(self.error)


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
    def total(self) -> int:
        """How many positions are decoded: those of the recorded call, or more where these do not cross a window and
        no other argument is as long."""
        recorded = self.stream.leading[self._axis]
        values = bound(self.xray.module, self.xray.call)
        others = [leaf for name, value in values.items() if name != self.main for leaf in tree_leaves(value)]
        tied = any(isinstance(leaf, Tensor) and recorded in leaf.shape for leaf in others)
        return recorded if tied else max(recorded, self._beyond_window)

    @property
    def _beyond_window(self) -> int:
        """A length that crosses the sliding window, where there is a short one."""
        config = getattr(self.xray.module, "config", None)
        for window in (self.xray.contract.window, getattr(config, "sliding_window", None)):
            if isinstance(window, int) and 0 < window <= MOST_WINDOW:
                return window + 3
        return 0

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the full pass, by name; longer than recorded where a window is to be crossed."""
        found: dict[str, Any] = copied(bound(self.xray.module, self.xray.call))
        lengthened = self._lengthened(found[self.main])
        found = {name: lengthened if value is found[self.main] else value for name, value in found.items()}
        return tree_map_only(Tensor, double, found) if self.exact else found

    def _lengthened(self, main: Tensor) -> Tensor:
        missing = self.total - main.shape[self._axis]
        if missing <= 0:
            return main
        generator = torch.Generator().manual_seed(self.xray.seed)
        order = torch.randint(main.shape[self._axis], (missing,), generator=generator).to(main.device)
        return torch.cat((main, main.index_select(self._axis, order).flip(0)), dim=self._axis)

    @property
    def _axis(self) -> int:
        return self.stream.time_axis

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
        return None if self.cache is None else _cache_of(run.result, self.cache, state, self.xray.promised("cache"))

    def _empty(self) -> Any:
        """What the cache argument is first given: what the call had if that is empty, or what a layer of transformers
        asks for."""
        if self.cache is None:
            return None
        given = copied(self.arguments.get(self.cache))
        parameter = parameters_of(self.xray.module).get(self.cache)
        transformers = sys.modules.get("transformers")
        of_features = self.arguments[self.main].is_floating_point()
        if given is None and of_features and transformers and parameter and "Cache" in str(parameter.annotation):
            return transformers.DynamicCache()
        return None if _holds(given) else given

    def output(self, run: Run, length: int) -> Tensor | None:
        """The returned tensor that holds one row per position, time first."""
        shape = list(self.stream.leading)
        shape[self._axis] = length
        for found in tree_leaves(run.result):
            if isinstance(found, Tensor) and list(found.shape[: len(shape)]) == shape and found.dim() > len(shape):
                return found.detach().clone().movedim(self._axis, 0) if found.is_floating_point() else None
        return None

    def run(self, module: nn.Module, arguments: dict[str, Any]) -> Run:
        torch.manual_seed(self.xray.seed)
        args, kwargs = _as_call(module, arguments)
        with torch.no_grad(), _Unobserved():  # type: ignore[no-untyped-call]
            try:
                return Run(module(*args, **kwargs))
            except Exception as error:
                return Run(failure=error)

    def recorded(self, module: nn.Module, arguments: dict[str, Any]) -> Tape:
        torch.manual_seed(self.xray.seed)
        args, kwargs = _as_call(module, arguments)
        return record(module, args, kwargs, Call(args, kwargs, "decoding").names(module), stateful=True)

    def cut(self, start: int, end: int, *, cached: bool) -> dict[str, Any]:
        """The arguments for positions ``start`` to ``end`` after ``start`` others."""
        main = self.arguments[self.main]
        done: dict[int, Tensor] = {}
        found: dict[str, Any] = {}
        for name, value in self.arguments.items():
            if name == self.cache and not cached:
                found[name] = None
                continue

            def part(tensor: Tensor, name: str = name) -> Tensor:
                return done.setdefault(id(tensor), self._part(name, tensor, start, end))

            found[name] = tree_map_only(Tensor, part, value)
        if self.flag is not None:
            found[self.flag] = cached
        if self.cache is not None and cached:
            found.setdefault(self.cache, None)
        if self.begin is not None:
            found[self.begin] = self._beginning(start, end)
        if self.places is not None:
            found[self.places] = torch.arange(start, end, device=main.device).expand(main.shape[1 - self._axis], -1)
        return found

    def _beginning(self, start: int, end: int) -> Any:
        given = self.arguments.get(self.begin or "")
        if isinstance(given, Tensor) and given.dim() > 0:
            return torch.arange(start, end, device=given.device).expand(*given.shape[:-1], -1)
        return torch.tensor(start, device=given.device) if isinstance(given, Tensor) else start

    def _part(self, name: str, tensor: Tensor, start: int, end: int) -> Tensor:
        length, total, recorded = end - start, self.total, self.stream.leading[self._axis]
        if self._moves_with_main(name, tensor):
            return tensor.narrow(self._axis, start, length)
        if recorded != total:
            return tensor
        if "mask" in name or "bias" in name:
            square = tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2] == total
            tensor = tensor.narrow(-2, start, length) if square else tensor
            return tensor.narrow(-1, 0, end) if tensor.dim() and tensor.shape[-1] == total else tensor
        if any(word in name.lower() for word in ("pos", "rot", "rope", "freq", "cos", "sin", "ids")):
            last = tensor.dim() - (2 if tensor.is_floating_point() or tensor.is_complex() else 1)
            axis = next((axis for axis in range(last, -1, -1) if tensor.shape[axis] == total), None)
            return tensor if axis is None else tensor.narrow(axis, start, length)
        return tensor

    def _moves_with_main(self, name: str, tensor: Tensor) -> bool:
        """Whether an argument is the main one or lies beside it: the key and value of one self-attention."""
        main, leading = self.arguments[self.main], len(self.stream.leading)
        alike = tensor.shape[:leading] == main.shape[:leading] and tensor.dtype == main.dtype
        return tensor is main or (alike and tensor.dim() == main.dim() and "mask" not in name)


def decoders(xray: XRay) -> list[Decoder]:
    """The ways of decoding that a module's signature and state suggest; none where it has no cache."""
    main, known = xray.streams.main, parameters_of(xray.module)
    values = bound(xray.module, xray.call)
    if main is None or main.name not in values or not isinstance(values[main.name], Tensor) or len(main.leading) != 2:
        return []
    declared = xray.contract.cache
    cache = declared if declared is not None else next((name for name in CACHES if name in known), None)
    flag = next((name for name in FLAGS if name in known), None)
    begin = next((name for name in STARTS if name in known), None)
    if cache is not None and cache in known:
        plain = Decoder(xray, main, main.name, cache, flag, _only_numbers(begin, known, values))
    elif flag is not None or begin is not None:
        plain = Decoder(xray, main, main.name, None, flag, begin)
        if not _keeps_state(plain):
            return []
    else:
        return []
    places = next((name for name in POSITIONS if name in known and name != begin and values.get(name) is None), None)
    return [plain] if places is None else [plain, replace(plain, places=places)]


def _only_numbers(begin: str | None, known: Mapping[str, inspect.Parameter], values: Mapping[str, Any]) -> str | None:
    """A begin that is handed over beside a cache: only where it is given, or is a number by default."""
    if begin is None or values.get(begin) is not None:
        return begin
    return begin if isinstance(known[begin].default, int) or known[begin].default is inspect.Parameter.empty else None


def _keeps_state(decoder: Decoder) -> bool:
    """Whether a call leaves something behind in the module."""
    module = decoder.module()
    before = _state(module)
    return decoder.run(module, decoder.cut(0, 1, cached=True)).failure is None and _state(module) != before


def _state(module: nn.Module) -> list[tuple[str, int, int]]:
    held = [(path, part) for path, part in module.named_modules()]
    found = []
    for path, part in held:
        plain = {
            name: value for name, value in vars(part).items() if not name.startswith("_") or isinstance(value, Tensor)
        }
        for name, value in {**plain, **part._buffers}.items():
            version = value._version if isinstance(value, Tensor) and not value.is_inference() else 0
            found.append((f"{path}.{name}", id(value), version))
    return found


def mismatch(xray: XRay) -> Mismatch | None:
    """The first chunk that a module decodes otherwise than the full pass computes it; None where all agree.

    A module whose full pass looks ahead, or gives a beginning of the input other numbers than the whole of it, cannot
    be decoded to the same end, and a module that draws random numbers never is: nothing is known of these.
    """
    if xray.tape.failure is not None or not xray.sites:
        return None
    with preserved(xray.module, xray.seed):
        try:
            ways = decoders(xray)
            return _in_every_way(ways) if ways and not _looks_ahead(ways[0]) else None
        except (NotCopiedError, _Undecided):
            return None
        except Exception:  # a copy that cannot be made or called: nothing is known
            return None


def _looks_ahead(decoder: Decoder) -> bool:
    """Whether an output of the pass without a cache depends on a later input, or may do so for all that is known."""
    xray, cache = decoder.xray, decoder.cache
    if cache is not None and decoder.arguments.get(cache) is not None:
        xray = xray.again(xray.call.with_argument(xray.module, cache, None))
    influence = xray.streams.influence if xray.tape.failure is None else None
    return influence is None or bool(influence.triu(1).any())


def _in_every_way(ways: Sequence[Decoder]) -> Mismatch | None:
    found = None
    for decoder in ways:
        seen = _first(decoder)
        if seen is None:
            return None
        found = found or seen
    return found


class _Undecided(Exception):
    """The module cannot be decoded in this way."""


def _first(decoder: Decoder) -> Mismatch | None:
    """The first mismatch of one way of decoding that float64, and the pass over the beginning alone, confirm."""
    whole = decoder.output(decoder.full(), decoder.total)
    if whole is None:
        raise _Undecided
    for lengths in _schedules(decoder):
        found = _compared(decoder, whole, lengths, SINGLE)
        if found is not None:
            return found if _confirmed(decoder, found, whole) else None
    return None


def _schedules(decoder: Decoder) -> Iterator[tuple[int, ...]]:
    """Token by token; a prompt and then token by token; in chunks; all at once with the cache attached."""
    total = decoder.total
    yield (1,) * total
    prompt = max(2, total // 2)
    yield (prompt, *(1,) * (total - prompt))
    if _masks_itself(decoder):
        yield (2, total - 2)
    yield (total,)


def _masks_itself(decoder: Decoder) -> bool:
    """Whether chunks need no mask from the caller: none was left out, or the cache is declared."""
    masks = [name for name in parameters_of(decoder.xray.module) if "mask" in name]
    whole_model = not decoder.arguments[decoder.main].is_floating_point()
    return whole_model or decoder.xray.promised("cache") or all(decoder.arguments.get(n) is not None for n in masks)


def _compared(decoder: Decoder, whole: Tensor, lengths: tuple[int, ...], tolerance: float) -> Mismatch | None:
    spread = float(whole.abs().max()) or 1.0
    tolerance = max(tolerance, 8 * torch.finfo(whole.dtype).eps)
    done = 0
    for start, end, run in decoder.steps(lengths):
        done = end
        if run.failure is not None:
            if decoder.xray.promised("cache"):
                return Mismatch(decoder, start, end, lengths, 0.0, spread, run.failure)
            raise _Undecided
        part = decoder.output(run, end - start)
        if part is None:
            raise _Undecided
        difference = float((part - whole[start:end]).abs().nan_to_num(torch.inf).max())
        if difference > tolerance * spread:
            return Mismatch(decoder, start, end, lengths, difference, spread)
    if done < decoder.total:
        raise _Undecided
    return None


def _confirmed(decoder: Decoder, found: Mismatch, whole: Tensor) -> bool:
    if found.error is not None:
        return True
    beginning = decoder.output(decoder.full(found.end), found.end)
    again = decoder.output(decoder.full(), decoder.total)
    rounding = UNSURE * found.spread
    if beginning is None or again is None or not torch.equal(again, whole):
        return False
    apart = float((beginning - whole[: found.end]).abs().max())
    if apart > min(rounding, 0.1 * found.difference):
        return False
    twin = replace(decoder, exact=True)
    try:
        dtype = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        exact = twin.output(twin.full(), twin.total)
        if exact is None or exact.dtype != torch.float64:
            raise _Undecided
        return _compared(twin, exact, found.lengths, DOUBLE) is not None
    except Exception:  # no float64: only what rounding cannot explain counts
        return found.difference > rounding
    finally:
        torch.set_default_dtype(dtype)


def _cache_of(result: Any, name: str, handed: Any, declared: bool) -> Any:
    """The cache after a call: what the module returned of that name or form, or the object that it was handed and
    filled."""
    named = [result.get(key) for key in (name, "past_key_values", "presents", "cache") if isinstance(result, Mapping)]
    named += [getattr(result, name, None)] if not isinstance(result, tuple | list | Mapping) else []
    parts = list(result[1:]) if isinstance(result, tuple | list) else []
    for found in (*named, *parts):
        if found is not None and not isinstance(found, Tensor) and _holds(found) >= 2:
            return found
    if handed is not None and _holds(handed) >= 2:
        return handed
    lone = [part for part in parts if isinstance(part, Tensor)]
    return (
        lone[-1]
        if len(lone) == 1 and (declared or lone[0].dim() >= 4) and lone[0].shape[-1] != lone[0].shape[-2]
        else None
    )


def _holds(cache: Any, depth: int = 4) -> int:
    """How many tensors a cache holds, in containers and in attributes of its objects."""
    leaves = tree_leaves(cache)
    count = sum(isinstance(leaf, Tensor) for leaf in leaves)
    if depth:
        plain = (Tensor, type, nn.Module)
        objects = [leaf for leaf in leaves if hasattr(leaf, "__dict__") and not isinstance(leaf, plain)]
        count += sum(_holds(list(vars(leaf).values()), depth - 1) for leaf in objects)
    return count


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
