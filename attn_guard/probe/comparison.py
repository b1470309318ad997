"""Two implementations of one thing on the same weights and inputs: how far apart they are, and which is faster."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

from attn_guard.errors import UsageError
from attn_guard.probe.copies import copied
from attn_guard.probe.hygiene import device_and_dtype, preserved, seed_streams

# A difference is rounding below this multiple of the dtype's epsilon, and below this share of the largest number.
ROUNDING = 256.0
MOST = 0.05
REPEATS = 15


@dataclass(frozen=True)
class Difference:
    """Two tensors that should be the same: the largest absolute difference, and the largest number in the first.

    ``name`` says which: "output 0", "gradient of qkv.weight". ``largest`` is infinite where shapes differ, and
    ``note`` says so.
    """

    name: str
    largest: float
    size: float
    rounding: float
    note: str = ""

    @property
    def same(self) -> bool:
        """Whether the difference is no larger than rounding can make it."""
        return self.largest <= self.rounding

    def __str__(self) -> str:
        return f"{self.largest:.2g} of {self.size:.2g}{f' ({self.note})' if self.note else ''}"


@dataclass(frozen=True)
class Comparison:
    """How two implementations compare; ``print(comparison)`` shows it.

    ``outputs`` holds one difference per returned tensor, ``gradients`` one per parameter and per input with floating
    numbers. ``speed`` says how many times as fast the second one is (forward and backward, the best of several runs in
    turn). ``notes`` say what could not be compared.
    """

    first: str
    second: str
    outputs: tuple[Difference, ...]
    gradients: tuple[Difference, ...]
    seconds: tuple[float, float]
    place: str
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether outputs and gradients differ by no more than rounding."""
        return all(difference.same for difference in (*self.outputs, *self.gradients))

    @property
    def speed(self) -> float:
        return self.seconds[0] / self.seconds[1]

    def __str__(self) -> str:
        verdict = "the same but for rounding" if self.same else "not the same"
        rows = [*self.outputs, *self.gradients]
        width = max((len(row.name) for row in rows), default=0)
        lines = [f"{self.first} and {self.second}: {verdict}", ""]
        lines += [f"  {'=' if row.same else '≠'} {row.name:<{width}}  differs by {row}" for row in rows]
        lines += [
            "",
            f"  {self.second} is {self.speed:.2g} times as fast as {self.first}, forward and backward {self.place}",
        ]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def compare(
    module: nn.Module,
    other: nn.Module,
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    other_args: Any = None,
    other_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Comparison:
    """Run two implementations on the same weights and inputs, and compare outputs, gradients and speed.

    ``args`` is a tuple of positional arguments (or a single tensor) and ``kwargs`` the keyword arguments of both;
    ``other_args`` and ``other_kwargs`` are for the second, where it is called in another way (`nn.MultiheadAttention`
    takes x three times). The weights of ``module`` take the place of those of ``other``: by name where all names and
    shapes agree, otherwise matrix by matrix and vector by vector in the order in which they are registered; several in
    a row that the other has in one piece (query, key and value in one projection) are stacked. Where that does not
    work out, each keeps its own weights, and a note says so.

    Gradients are those of the first output's product with random numbers. Both run in evaluation mode. Neither module
    is changed. Raises `UsageError` for what is no module, and what the modules raise on the arguments.
    """
    for given in (module, other):
        if not isinstance(given, nn.Module):
            raise UsageError(f"compare() takes two torch.nn.Modules, got {type(given).__name__}")
    call = (_positional(args), dict(kwargs or {}))
    other_call = call
    if other_args is not None or other_kwargs is not None:
        other_call = (_positional(other_args), dict(other_kwargs or {}))
    pairs, notes = _paired(module, other)
    weights = _leaves(module)
    with preserved(module, seed), preserved(other, seed), torch.enable_grad():
        first = _Run(module, weights, call, seed)
        second = _Run(other, _carried(other, weights, pairs), other_call, seed)
        seconds = _timed(first, second)
        return Comparison(
            first=type(module).__name__,
            second=type(other).__name__,
            outputs=tuple(_outputs(first, second)),
            gradients=tuple(_gradients(first, second, pairs)),
            seconds=seconds,
            place=_place(module, call),
            notes=tuple(notes),
        )


Pairs = Sequence[tuple[Sequence[str], Sequence[str]]]


class _Run:
    """One run of a module on given weights, and the gradients of its first output."""

    def __init__(self, module: nn.Module, weights: Mapping[str, Tensor], call: tuple[Any, Any], seed: int) -> None:
        self.module, self.weights, self.call, self.seed = module, dict(weights), call, seed
        result, self.inputs = self()
        self.outputs = _tensors(result)
        self.gradients: dict[str, Tensor] = {}
        self.input_gradients: list[Tensor] = []
        if self.outputs and self.outputs[0].requires_grad:
            trained = {name: leaf for name, leaf in self.weights.items() if leaf.requires_grad}
            leaves = [*trained.values(), *self.inputs]
            numbers = torch.randn(self.outputs[0].shape, generator=torch.Generator().manual_seed(seed))
            direction = numbers.to(self.outputs[0])
            found = torch.autograd.grad(self.outputs[0], leaves, direction, allow_unused=True)
            filled = [
                torch.zeros_like(leaf) if grad is None else grad for leaf, grad in zip(leaves, found, strict=True)
            ]
            self.gradients = dict(zip(trained, filled, strict=False))
            self.input_gradients = filled[len(trained) :]

    def __call__(self) -> tuple[Any, list[Tensor]]:
        """The result, and the floating inputs that it was computed from; the same random numbers each time."""
        args, kwargs = copied(self.call)
        inputs = [leaf.requires_grad_() for leaf in _tensors((args, kwargs))]
        seed_streams(self.module, self.seed)
        return functional_call(self.module, self.weights, args, kwargs), inputs

    def once(self) -> None:
        """One forward and one backward pass, for the clock."""
        result, inputs = self()
        output = _tensors(result)[0]
        if output.requires_grad:
            leaves = [leaf for leaf in (*self.weights.values(), *inputs) if leaf.requires_grad]
            torch.autograd.grad(output, leaves, torch.ones_like(output), allow_unused=True)
        if output.is_cuda:
            torch.cuda.synchronize(output.device)


def _timed(first: _Run, second: _Run) -> tuple[float, float]:
    """The least seconds of each, run in turn so that both meet the same load."""
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in range(REPEATS + 2):
        for run, times in zip((first, second), taken, strict=True):
            start = time.perf_counter()
            run.once()
            if turn > 1:
                times.append(time.perf_counter() - start)
    return min(taken[0]), min(taken[1])


def _outputs(first: _Run, second: _Run) -> Iterator[Difference]:
    for place, (left, right) in enumerate(zip(first.outputs, second.outputs, strict=False)):
        yield _difference(f"output {place}", left, right)


def _gradients(first: _Run, second: _Run, pairs: Pairs) -> Iterator[Difference]:
    for names, other_names in pairs:
        if not (first.gradients.keys() >= set(names) and second.gradients.keys() >= set(other_names)):
            continue
        left, right = (
            torch.cat([run.gradients[name] for name in held]) for run, held in ((first, names), (second, other_names))
        )
        yield _difference(f"gradient of {', '.join(names)}", left, right)
    if len(first.input_gradients) == len(second.input_gradients):
        for place, (left, right) in enumerate(zip(first.input_gradients, second.input_gradients, strict=True)):
            yield _difference(f"gradient of input {place}", left, right)


def _difference(name: str, left: Tensor, right: Tensor) -> Difference:
    if left.shape != right.shape:
        return Difference(name, torch.inf, 0.0, 0.0, f"{tuple(left.shape)} and {tuple(right.shape)}")
    a, b = left.detach().double(), right.detach().double()
    size = float(a[a.isfinite()].abs().max()) if a.isfinite().any() else 0.0
    apart = torch.where((a == b) | (a.isnan() & b.isnan()), torch.zeros_like(a), (a - b).abs())
    largest = float(apart.nan_to_num(torch.inf).max()) if apart.numel() else 0.0
    coarser = max(torch.finfo(part.dtype).eps for part in (left, right) if part.is_floating_point())
    return Difference(name, largest, size, min(ROUNDING * coarser, MOST) * max(size, 1e-3))


def _paired(module: nn.Module, other: nn.Module) -> tuple[Pairs, list[str]]:
    """Which parameters of the two hold the same numbers; none where that cannot be told."""
    left, right = dict(module.named_parameters()), dict(other.named_parameters())
    if {name: p.shape for name, p in left.items()} == {name: p.shape for name, p in right.items()}:
        return [([name], [name]) for name in left], []
    found: list[tuple[Sequence[str], Sequence[str]]] = []
    dims = sorted({p.dim() for p in (*left.values(), *right.values())})
    for dim in dims:
        group = _stacked(
            [(name, p.shape) for name, p in left.items() if p.dim() == dim],
            [(name, p.shape) for name, p in right.items() if p.dim() == dim],
        )
        if group is None:
            return [], ["the parameters do not correspond, so each keeps its own weights"]
        found += group
    order = list(left)
    return sorted(found, key=lambda pair: order.index(pair[0][0])), []


Shaped = list[tuple[str, torch.Size]]


def _stacked(left: Shaped, right: Shaped) -> Pairs | None:
    """Runs of parameters of the two with equally many rows, in order; None where they do not come out even."""
    found: list[tuple[list[str], list[str]]] = []
    left, right = left[::-1], right[::-1]
    while left and right:
        names, other_names = [left[-1][0]], [right[-1][0]]
        (_, shape), (_, other_shape) = left.pop(), right.pop()
        rows, other_rows, rest = shape[0], other_shape[0], shape[1:]
        if other_shape[1:] != rest:
            return None
        while rows != other_rows:
            behind = left if rows < other_rows else right
            if not behind or behind[-1][1][1:] != rest:
                return None
            name, more = behind.pop()
            if behind is left:
                names.append(name)
                rows += more[0]
            else:
                other_names.append(name)
                other_rows += more[0]
        found.append((names, other_names))
    return None if left or right else found


def _carried(other: nn.Module, weights: Mapping[str, Tensor], pairs: Pairs) -> dict[str, Tensor]:
    """Leaves for the parameters of the second module that hold the numbers of the first one's."""
    leaves = _leaves(other)
    for names, other_names in pairs:
        stacked = torch.cat([weights[name].detach() for name in names])
        sizes = [leaves[name].shape[0] for name in other_names]
        for name, part in zip(other_names, torch.split(stacked, sizes), strict=True):
            leaves[name] = part.to(leaves[name].dtype).clone().requires_grad_()
    return leaves


def _leaves(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone().requires_grad_(p.is_floating_point()) for name, p in module.named_parameters()}


def _positional(args: Any) -> tuple[Any, ...]:
    return () if args is None else tuple(args) if isinstance(args, tuple | list) else (args,)


def _tensors(value: Any) -> list[Tensor]:
    """The different tensors with floating numbers, in order."""
    leaves = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    return list({id(leaf): leaf for leaf in leaves}.values())


def _place(module: nn.Module, call: tuple[Any, Any]) -> str:
    device, dtype = device_and_dtype(module)
    shapes = " ".join(str(list(tensor.shape)) for tensor in _tensors(call))
    return f"({shapes}, {str(dtype).removeprefix('torch.')} on {device})"
