"""How to call a module that nobody told us how to call.

The signature of ``forward``, the shapes of the parameters and the contract suggest calls; the first that runs and
shows attention is used. Sizes are small and do not coincide, so that mistakes cannot hide behind equal numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from attn_guard.contract import Contract, MaskMeaning
from attn_guard.probe.hygiene import device_and_dtype

WIDTHS = (
    "embed_dim",
    "d_model",
    "hidden_size",
    "n_embd",
    "dim",
    "embed_size",
    "emb_size",
    "model_dim",
    "hidden_dim",
    "d_in",
)
HEADS = ("num_heads", "heads", "n_heads", "n_head", "nhead", "num_attention_heads", "h")
MEMORY = (
    "memory",
    "context",
    "encoder_hidden_states",
    "mem",
    "encoder_output",
    "enc_output",
    "kv",
    "key_value_states",
    "cond",
)
IDS = ("ids", "idx", "tokens", "indices", "input_ids", "token_ids", "decoder_input_ids")
TARGET = ("tgt", "trg", "target", "y", "decoder_input", "decoder_input_ids")
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
OWN_KEYS = ("key", "value", "k", "v", "keys", "values", "key_states", "value_states")


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


@dataclass(frozen=True)
class Sizes:
    """The sizes that a call is made with."""

    batch: int
    time: int
    memory: int
    width: int
    device: torch.device
    dtype: torch.dtype
    batch_first: bool = True
    vocabulary: int = 0
    generator: torch.Generator = field(default_factory=torch.Generator)

    def features(self, time: int) -> Tensor:
        shape = (self.batch, time) if self.batch_first else (time, self.batch)
        return torch.randn(*shape, self.width, generator=self.generator).to(self.device, self.dtype)

    def ids(self, time: int) -> Tensor:
        lowest = min(3, max(0, self.vocabulary - 1))
        drawn = torch.randint(lowest, max(lowest + 1, self.vocabulary), (self.batch, time), generator=self.generator)
        return drawn.to(self.device)


def original(module: nn.Module) -> nn.Module:
    """The module that `torch.compile` wrapped; any other module itself."""
    wrapped = getattr(module, "_orig_mod", None)
    return wrapped if isinstance(wrapped, nn.Module) else module


def given(args: Any, kwargs: Mapping[str, Any] | None, contract: Contract, module: nn.Module) -> Call:
    """The call that the user asked for."""
    positional = () if args is None else tuple(args) if isinstance(args, tuple | list) else (args,)
    return Call(positional, dict(kwargs or {}), "as given", is_batch_first(module, contract))


def suggested(module: nn.Module, contract: Contract, seed: int = 0) -> Iterator[Call]:
    """Calls worth trying, the likeliest first."""
    parameters = parameters_of(module)
    required = [
        p
        for p in parameters.values()
        if (p.default is p.empty or (contract.cross and p.name in MEMORY))
        and p.kind is not p.VAR_POSITIONAL
        and p.kind is not p.VAR_KEYWORD
    ]
    if not required:
        yield from _of_library(module, contract, seed)
        named = [p for p in parameters.values() if p.name in IDS or p.kind is p.POSITIONAL_OR_KEYWORD]
        required = named[:1]
    if not required and any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        required = [inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)]
    yield from _of_images(module, required, seed)
    for sizes in _sizes(module, contract, seed):
        for ids in _ids_or_features(required, sizes):
            for masks in (0, 1, 2):
                call = _filled(module, contract, required, sizes, ids, masks)
                if call is not None:
                    yield call


def _of_library(module: nn.Module, contract: Contract, seed: int) -> Iterator[Call]:
    """Models of transformers say what they take in their configuration."""
    config = getattr(module, "config", None)
    if getattr(module, "main_input_name", None) != "input_ids" or config is None:
        return
    for sizes in _sizes(module, contract, seed):
        kwargs: dict[str, Any] = {"input_ids": sizes.ids(sizes.time)}
        if getattr(config, "is_encoder_decoder", False):
            kwargs["decoder_input_ids"] = sizes.ids(sizes.memory)
        if "use_cache" in parameters_of(module):
            kwargs["use_cache"] = False
        yield Call((), kwargs, "input_ids of a transformers model")
        return


def _of_images(module: nn.Module, required: list[inspect.Parameter], seed: int) -> Iterator[Call]:
    """Modules of one argument whose first layer is a 2-D convolution take images (batch, channels, height, width)."""
    first = next((child for child in module.modules() if isinstance(child, nn.Conv2d | nn.Linear)), None)
    if not isinstance(first, nn.Conv2d) or len(required) != 1:
        return
    device, dtype = device_and_dtype(module)
    image = torch.randn(2, first.in_channels, 4, 6, generator=torch.Generator().manual_seed(seed)).to(device, dtype)
    how = f"an image of {first.in_channels} channels by the first convolution"
    if required[0].kind is inspect.Parameter.KEYWORD_ONLY:
        yield Call((), {required[0].name: image}, how)
    else:
        yield Call((image,), {}, how)


def _ids_or_features(required: list[inspect.Parameter], sizes: Sizes) -> tuple[bool, ...]:
    if sizes.vocabulary == 0:
        return (False,)
    named = bool(required) and required[0].name in IDS
    return (True, False) if named else (False, True)


def _filled(
    module: nn.Module, contract: Contract, required: list[inspect.Parameter], sizes: Sizes, ids: bool, masks: int
) -> Call | None:
    """A value for every parameter that needs one. ``masks`` numbers the ways of filling an undeclared mask."""
    args: dict[str, Any] = {}
    value: Any
    first = sizes.ids(sizes.time) if ids else sizes.features(sizes.time)
    any_mask = False
    for position, parameter in enumerate(required):
        name = parameter.name
        if name == contract.segments:
            value = torch.ones(sizes.batch, sizes.time, dtype=torch.long, device=sizes.device)
        elif "mask" in name or name in (contract.masks or {}):
            any_mask = True
            value = _open_mask(contract, name, sizes, masks)
        elif position == 0 or (name in OWN_KEYS and not contract.cross):
            value = first
        elif name in OWN_KEYS and position == 2 and contract.cross:
            value = args[required[1].name]
        elif name in MEMORY or name in OWN_KEYS or contract.cross:
            value = sizes.ids(sizes.memory) if ids else sizes.features(sizes.memory)
        elif name == "position_embeddings":
            value = _rotary(module, sizes)
        elif name in CACHES or name == contract.cache:
            value = None
        elif name in STARTS:
            value = torch.arange(sizes.time, device=sizes.device) if name in ("input_pos", "cache_position") else 0
        elif name in IDS or "ids" in name.split("_"):
            value = torch.arange(sizes.time, device=sizes.device).expand(sizes.batch, -1)
        elif name in TARGET:
            value = sizes.ids(sizes.memory) if ids else sizes.features(sizes.memory)
        else:
            value = sizes.features(sizes.time) if position == 1 else None
        args[name] = value
    if masks and not any_mask:
        return None
    how = f"{', '.join(args)} by the signature of forward, width {sizes.width} by the parameters"
    positional = [p.name for p in required if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return Call(
        tuple(args[name] for name in positional),
        {name: value for name, value in args.items() if name not in positional},
        how,
        sizes.batch_first,
    )


def _open_mask(contract: Contract, name: str, sizes: Sizes, way: int) -> Tensor | None:
    """A mask that blocks nothing. An undeclared one is None, then 2-D of keys, then square, with True for attend."""
    meaning = (contract.masks or {}).get(name) or known_meaning(name)
    keep = torch.ones(sizes.batch, sizes.time, dtype=torch.bool, device=sizes.device)
    if meaning is not None and way == 0:
        return as_mask(keep, meaning, sizes.dtype)
    if way == 0:
        return None
    if way == 1:
        return keep
    return torch.ones(sizes.time, sizes.time, dtype=torch.bool, device=sizes.device)


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


def _rotary(module: nn.Module, sizes: Sizes) -> tuple[Tensor, Tensor]:
    head_dim = int(getattr(module, "head_dim", 0) or sizes.width // max(1, heads_of(module)))
    angles = torch.arange(sizes.time)[:, None] / 10000 ** (torch.arange(0, head_dim, 2) / head_dim)
    both = torch.cat((angles, angles), dim=-1)[None, :, :head_dim].to(sizes.device, sizes.dtype)
    return both.cos(), both.sin()


def _sizes(module: nn.Module, contract: Contract, seed: int) -> Iterator[Sizes]:
    """Sizes to try, one per possible width. Batch, time and memory are primes that differ from the number of heads."""
    heads = heads_of(module)
    batch = 3 if heads != 3 else 2
    time, memory = _lengths(heads, contract.window or 0)
    device, dtype = device_and_dtype(module)
    embedding = next((child for child in module.modules() if isinstance(child, nn.Embedding)), None)
    for width in _widths(module):
        yield Sizes(
            batch=batch,
            time=time,
            memory=memory,
            width=width,
            device=device,
            dtype=dtype,
            batch_first=is_batch_first(module, contract),
            vocabulary=embedding.num_embeddings if embedding is not None else 0,
            generator=torch.Generator().manual_seed(seed),
        )


# Wider windows than this would need sequences that cost too much.
WIDEST_WINDOW = 126


def _lengths(heads: int, window: int) -> list[int]:
    """Two primes that do not divide the number of heads, and that are longer than a declared window."""
    least = window + 2 if window <= WIDEST_WINDOW else 0
    primes = [number for number in range(5, 200) if all(number % factor for factor in range(2, int(number**0.5) + 1))]
    return [number for number in primes if heads % number and number >= least][:2]


def _widths(module: nn.Module) -> list[int]:
    """Possible sizes of the feature axis, from what the parameters take in, then from attributes."""
    found: list[int] = []
    for child in module.modules():
        if isinstance(child, nn.Linear):
            found.append(child.in_features)
        elif isinstance(child, nn.LayerNorm):
            found.append(child.normalized_shape[-1])
        elif isinstance(child, nn.MultiheadAttention):
            found.append(child.embed_dim)
        elif isinstance(child, nn.Embedding):
            found.append(child.embedding_dim)
    stated = [getattr(module, name, None) for name in WIDTHS]
    found += [width for width in stated if isinstance(width, int)]
    found += [parameter.shape[0] for parameter in module.parameters() if parameter.dim() == 2]
    return list(dict.fromkeys(found)) or [13]


def heads_of(module: nn.Module) -> int:
    for child in module.modules():
        for name in HEADS:
            number = getattr(child, name, None)
            if isinstance(number, int) and number > 0:
                return number
    return 1


def is_batch_first(module: nn.Module, contract: Contract) -> bool:
    if contract.batch_first is not None:
        return contract.batch_first
    if not type(module).__module__.startswith("torch.nn"):
        return True
    stated = (getattr(child, "batch_first", None) for child in module.modules())
    return next((value for value in stated if isinstance(value, bool)), True)


def bound(module: nn.Module, call: Call) -> dict[str, Any]:
    """Parameter name → value of a call; positions where the signature cannot tell."""
    try:
        found = inspect.signature(module.forward).bind(*call.args, **call.kwargs).arguments
    except (TypeError, ValueError):
        return {**{str(position): value for position, value in enumerate(call.args)}, **call.kwargs}
    flat: dict[str, Any] = {}
    for name, value in found.items():
        kind = inspect.signature(module.forward).parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
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
    try:
        return inspect.signature(module.forward).parameters
    except (TypeError, ValueError):
        return {}


def mask_parameters(module: nn.Module) -> list[str]:
    return [name for name in parameters_of(module) if "mask" in name]


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return f"{kind}{list(value.shape)}"
    return repr(value) if isinstance(value, int | float | str | bool | type(None)) else type(value).__name__
