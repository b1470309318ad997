"""Records a run on a tape.

A dispatch mode sees every tensor operation below autograd. The fused attention paths are turned off meanwhile, so that
hand-written attention, `F.scaled_dot_product_attention` and `nn.MultiheadAttention` all show the same matmuls,
scale, mask and softmax.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from attn_guard.probe import flex
from attn_guard.probe.hygiene import other_streams
from attn_guard.probe.places import calling_place
from attn_guard.probe.tape import FusedCall, Op, Ref, Tape


def record(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    input_names: Mapping[int, str] | None = None,
    *,
    stateful: bool = False,
) -> Tape:
    """Call ``module(*args, **kwargs)`` once and return its tape.

    What the run wrote in place is undone; a ``stateful`` run keeps what it wrote into anything but parameters.

    An exception of the module ends the tape and is kept in ``tape.failure``. Runs without gradients, in the module's
    present mode; the caller sees to it that state is kept (`attn_guard.probe.hygiene`).
    """
    recorder = _Recorder(module, input_names or {}, stateful=stateful)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(unfused(recorder.note_fused))
        stack.enter_context(uncompiled())
        stack.enter_context(torch._C.DisableTorchFunctionSubclass())  # results of subclasses would be re-made unseen
        stack.enter_context(recorder.following_modules())
        stack.enter_context(recorder)
        streams = other_streams()
        try:
            recorder.boundary = sys._getframe()
            result = module(*args, **kwargs)
        except Exception as error:
            recorder.tape.failure = error
            result = None
        recorder.tape.draws_elsewhere = other_streams() != streams
    recorder.tape.result = tree_map_only(Tensor, lambda tensor: Ref(recorder.number(tensor)), result)
    return recorder.close()


@contextmanager
def unfused(note: Callable[[bool, bool], None] | None = None) -> Iterator[None]:
    """Attention is computed step by step inside: no fused kernels, no encoder fast path.

    ``note`` is told of each call of `F.scaled_dot_product_attention` whether it was given a mask, and ``is_causal``.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH), _OwnKernels(note):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def uncompiled() -> Iterator[None]:
    """What `torch.compile` has wrapped runs as it is written, where the compiler is loaded and can be told so."""
    with ExitStack() as stack:
        stack.enter_context(flex.uncompiled())
        if "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance"):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


class _OwnKernels(TorchFunctionMode):
    """Takes the plain path of `F.scaled_dot_product_attention` also where a module asks for a kernel of its own
    choice, and that of `flex_attention`.

    The plain path refuses a mask beside ``is_causal=True``; here both are joined, as the fused kernels do. A module
    may import `flex_attention` only when it is called, so that it is told not to compile as soon as it is there.
    """

    def __init__(self, note: Callable[[bool, bool], None] | None = None) -> None:
        super().__init__()
        self._note = note
        self._inside = ExitStack()
        self._has_flex = False

    def __exit__(self, *raised: Any) -> None:
        self._inside.close()
        super().__exit__(*raised)  # type: ignore[no-untyped-call]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self._has_flex and flex.is_loaded():
            self._has_flex = True
            self._inside.enter_context(flex.uncompiled())
        if flex.is_flex(func):
            return flex.plain(*args, **kwargs)
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        given = {**dict(zip(_SDPA, args, strict=False)), **kwargs}
        masked, causal = given.get("attn_mask") is not None, bool(given.get("is_causal", False))
        if self._note is not None:
            self._note(masked, causal)
        if masked and causal:
            given = {**given, "attn_mask": _joined(**given), "is_causal": False}
        with sdpa_kernel(SDPBackend.MATH):
            return func(**given)


_SDPA = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


def _joined(query: Tensor, key: Tensor, attn_mask: Tensor, **_: Any) -> Tensor:
    """A mask and the triangle of ``is_causal``, which starts at the top left, in one."""
    keep = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    return attn_mask & keep if attn_mask.dtype == torch.bool else attn_mask.masked_fill(~keep, -torch.inf)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, module: nn.Module, input_names: Mapping[int, str], *, stateful: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tape = Tape()
        self._stateful = stateful
        self.boundary: FrameType | None = None
        self._paths = {id(child): path for path, child in module.named_modules()}
        self._running: list[str] = []
        self._names = {
            id(tensor): f"parameter {name}" for name, tensor in module.named_parameters(remove_duplicate=False)
        }
        self._names |= dict(_attributes(module))
        self._names |= {id(tensor): f"buffer {name}" for name, tensor in module.named_buffers(remove_duplicate=False)}
        self._names |= {key: f"input {name}" for key, name in input_names.items()}
        self._numbers: dict[int, int] = {}
        # Live tensors by storage. Holding them also keeps their ids from being used again during the run.
        self._sharing: dict[int, dict[int, Tensor]] = {}
        self._kept_in: dict[int, list[int]] = {}
        self._given: dict[int, Tensor] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would otherwise import its compiler, some seconds long, at the first operation."""
        return False

    def close(self) -> Tape:
        """Undoes what the run wrote into parameters, buffers and arguments, and lets go of all tensors but the
        tape's."""
        for value, tensor in self._given.items():
            kept = self.tape.values[value]
            if self._stateful and not self.tape.is_parameter(value):
                self._freeze(tensor)
            elif _storage(kept) != _storage(tensor):
                self._freeze(tensor)
                tensor.detach().copy_(kept)
        self._sharing.clear()
        self._given.clear()
        return self.tape

    def note_fused(self, masked: bool, causal: bool) -> None:
        place = calling_place(self.boundary)
        self.tape.fused.append(FusedCall(len(self.tape.ops), masked, causal, place, self._innermost))

    @property
    def _innermost(self) -> str:
        """Path of the innermost module that is running."""
        return self._running[-1] if self._running else ""

    @contextmanager
    def following_modules(self) -> Iterator[None]:
        """Keeps the path of the innermost running module."""

        def enter(module: nn.Module, _: Any) -> None:
            path = self._paths.get(id(module))
            self._running.append(self._running[-1] if path is None and self._running else path or "")

        def leave(module: nn.Module, _: Any, __: Any) -> None:
            self._running.pop()

        hooks = torch.nn.modules.module
        entered = hooks.register_module_forward_pre_hook(enter)
        left = hooks.register_module_forward_hook(leave, always_call=True)
        try:
            yield
        finally:
            entered.remove()
            left.remove()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        kind = _kind(func)
        if kind.is_composite:  # under inference mode, operations made of others arrive whole
            with self:
                whole = func.decompose(*args, **kwargs)
            if whole is not NotImplemented:
                return whole
        numbers: dict[int, None] = {}
        symbolic_args, symbolic_kwargs = self._symbolic(args, numbers), self._symbolic(kwargs, numbers)
        written = kind.written(args, kwargs)
        for tensor in written:
            self._freeze(tensor)
        op = Op(
            index=len(self.tape.ops),
            name=kind.name,
            run=func,
            args=symbolic_args,
            kwargs=symbolic_kwargs,
            inputs=tuple(numbers),
            outputs=(),
            writes=tuple([self._numbers[id(tensor)] for tensor in written]),
            place=calling_place(self.boundary),
            module=self._innermost,
            random=kind.is_random,
        )
        try:
            output = func(*args, **kwargs)
        except Exception:
            self.tape.failed_op = op
            raise
        made = _tensors(output)
        op.outputs = tuple([self._add(tensor, op.index) for tensor in (*made, *_absent(written, made))])
        self.tape.ops.append(op)
        for tensor, before in zip(written, op.writes, strict=True):
            self._renew_views(tensor, before, op)
        return output

    def _symbolic(self, argument: Any, numbers: dict[int, None]) -> Any:
        """An argument with its tensors replaced by `Ref`; their numbers are added to ``numbers`` in order."""
        if type(argument) in _PLAIN:
            return argument
        if isinstance(argument, Tensor):
            number = self.number(argument)
            numbers[number] = None
            return Ref(number)
        if isinstance(argument, list | tuple):
            return type(argument)([self._symbolic(leaf, numbers) for leaf in argument])
        if isinstance(argument, dict):
            return {name: self._symbolic(leaf, numbers) for name, leaf in argument.items()}
        return argument

    def number(self, tensor: Tensor) -> int:
        """The number of a tensor's present value; a tensor not seen before is a leaf."""
        known = self._numbers.get(id(tensor))
        if known is not None:
            return known
        value = self._add(tensor, None)
        self._given[value] = tensor
        self.tape.leaves[value] = self._names.get(id(tensor), "constant")
        return value

    def _add(self, tensor: Tensor, maker: int | None) -> int:
        value = len(self.tape.values)
        self.tape.values.append(tensor.detach() if tensor.requires_grad else tensor)
        self.tape.producer.append(maker)
        self._numbers[id(tensor)] = value
        storage = _storage(tensor)
        self._sharing.setdefault(storage, {})[id(tensor)] = tensor
        self._kept_in.setdefault(storage, []).append(value)
        return value

    def _freeze(self, tensor: Tensor) -> None:
        """The values that a write is about to change are kept as copies."""
        for value in self._kept_in.pop(_storage(tensor), ()):
            self.tape.values[value] = self.tape.values[value].clone()

    def _renew_views(self, written: Tensor, before: int, at: Op) -> None:
        """Every other view of a tensor written to has a new value, made of its old one and what was written."""
        source = self._numbers[id(written)]
        for sharer in list(self._sharing.get(_storage(written), {}).values()):
            old = self._numbers[id(sharer)]
            if sharer is written or old == source:
                continue
            index = len(self.tape.ops)
            value = self._add(sharer, index)
            run = _overwrite(_geometry(sharer), _geometry(written))
            self.tape.ops.append(
                Op(
                    index=index,
                    name="overwrite",
                    run=run,
                    args=(Ref(old), Ref(source)),
                    kwargs={},
                    inputs=(old, source),
                    outputs=(value,),
                    writes=(),
                    place=at.place,
                    module=at.module,
                )
            )


_PLAIN = frozenset((int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout))


def _attributes(module: nn.Module) -> Iterator[tuple[int, str]]:
    """id and name of each tensor that a module keeps as a plain attribute."""
    for path, child in module.named_modules():
        for name, value in vars(child).items():
            if isinstance(value, Tensor):
                yield id(value), f"attribute {path}.{name}" if path else f"attribute {name}"


Geometry = tuple[tuple[int, ...], tuple[int, ...], int]


def _geometry(tensor: Tensor) -> Geometry:
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())


def _overwrite(old: Geometry, new: Geometry) -> Callable[[Tensor, Tensor], Tensor]:
    """old value, value written through another view of the same memory → the new value of the old view."""

    def run(kept: Tensor, written: Tensor) -> Tensor:
        size = 1 + max(sum((n - 1) * s for n, s in zip(g[0], g[1], strict=True)) + g[2] for g in (old, new))
        memory = kept.new_zeros(size)
        memory.as_strided(*old).copy_(kept)
        memory.as_strided(*new).copy_(written)
        return memory.as_strided(*old)

    return run


def _storage(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return -id(tensor)


# These write their running statistics in training, and their schema does not say so.
_BATCH_NORMS = frozenset({"native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"})
_STATISTICS = ("running_mean", "running_var")
_TRAINING = 5


@dataclass(frozen=True)
class _Kind:
    """What is the same for all calls of an operator. ``writing`` are the arguments it writes in place: position and
    name."""

    name: str
    is_composite: bool
    is_random: bool
    writing: tuple[tuple[int, str], ...]

    def written(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
        """The tensors that a call writes in place."""
        if not self.writing:
            return []
        trains = self.name not in _BATCH_NORMS or (len(args) > _TRAINING and bool(args[_TRAINING]))
        given = [
            args[position] if position < len(args) else kwargs.get(name)
            for position, name in self.writing
            if trains or name not in _STATISTICS
        ]
        return [leaf for value in given for leaf in _tensors(value)]


def written(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that a call of an operator writes in place."""
    return _kind(func).written(args, kwargs)


@cache
def _kind(func: Any) -> _Kind:
    name = func._schema.name.removeprefix("aten::")
    silent = _STATISTICS if name in _BATCH_NORMS else ()
    writing = tuple(
        (position, argument.name)
        for position, argument in enumerate(func._schema.arguments)
        if (argument.alias_info is not None and argument.alias_info.is_write) or argument.name in silent
    )
    return _Kind(
        name=name,
        is_composite=torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"),
        is_random=torch.Tag.nondeterministic_seeded in func.tags,
        writing=writing,
    )


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _absent(written: list[Tensor], made: list[Tensor]) -> list[Tensor]:
    return [tensor for tensor in written if all(tensor is not other for other in made)]
