"""The sizes to call a module with, from its parameters and attributes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from attn_guard.contract import Contract
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
# What the layers are called that project queries, and those that project keys (and values with them).
QUERY_LAYERS = ("q", "query", "q_proj", "to_q", "wq", "w_q", "W_q", "Wq", "q_linear", "query_proj", "q_lin")
KEY_LAYERS = (
    *("k", "key", "k_proj", "to_k", "wk", "w_k", "W_k", "Wk", "k_linear", "key_proj", "k_lin"),
    *("kv", "to_kv", "kv_proj", "Wkv", "w_kv", "key_value"),
)

# Wider windows than this would need sequences that cost too much.
WIDEST_WINDOW = 126


@dataclass(frozen=True)
class Dimensions:
    """The sizes that a call is made with. ``memory_width`` and ``value_width`` are the features of keys and values that
    come from elsewhere."""

    batch: int
    time: int
    memory: int
    width: int
    memory_width: int
    value_width: int
    heads: int
    device: torch.device
    dtype: torch.dtype
    batch_first: bool = True
    vocabulary: int = 0
    generator: torch.Generator = field(default_factory=torch.Generator)

    def features(self, time: int, width: int | None = None) -> Tensor:
        shape = (self.batch, time) if self.batch_first else (time, self.batch)
        return self.numbers(*shape, width or self.width)

    def flat(self) -> Tensor:
        """Sequences of several samples one after another: (time, width)."""
        return self.numbers(self.time, self.width)

    def numbers(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator).to(self.device, self.dtype)

    def ids(self, time: int) -> Tensor:
        lowest = min(3, max(0, self.vocabulary - 1))
        drawn = torch.randint(lowest, max(lowest + 1, self.vocabulary), (self.batch, time), generator=self.generator)
        return drawn.to(self.device)


def dimensions(module: nn.Module, contract: Contract, seed: int) -> Iterator[Dimensions]:
    """Sizes to try, one per possible width. Batch, time and memory are primes that differ from the number of heads,
    unless the module takes one length only."""
    heads = heads_of(module)
    batch = 3 if heads != 3 else 2
    time, memory = _lengths(heads, contract.window or 0)
    time = _only_length(module) or time
    device, dtype = device_and_dtype(module)
    embedding = next((child for child in module.modules() if isinstance(child, nn.Embedding)), None)
    apart = key_widths(module)
    for width in _widths(module):
        memory_width, value_width = apart or (width, width)
        yield Dimensions(
            batch=batch,
            time=time,
            memory=memory,
            width=width,
            memory_width=memory_width,
            value_width=value_width,
            heads=heads,
            device=device,
            dtype=dtype,
            batch_first=is_batch_first(module, contract),
            vocabulary=embedding.num_embeddings if embedding is not None else 0,
            generator=torch.Generator().manual_seed(seed),
        )


def _lengths(heads: int, window: int) -> list[int]:
    """Two primes that do not divide the number of heads, and that are longer than a declared window."""
    least = window + 2 if window <= WIDEST_WINDOW else 0
    primes = [number for number in range(5, 200) if all(number % factor for factor in range(2, int(number**0.5) + 1))]
    return [number for number in primes if heads % number and number >= least][:2]


def _only_length(module: nn.Module) -> int | None:
    """The length of windows that a table of relative positions (time, time) is made for."""
    for name, buffer in module.named_buffers():
        is_index = "index" in name and not buffer.is_floating_point() and buffer.dim() == 2
        if is_index and buffer.shape[0] == buffer.shape[1] > 1:
            return buffer.shape[0]
    return None


def key_widths(module: nn.Module) -> tuple[int, int] | None:
    """The features of keys and of values, where they are not as many as those of queries; else None.

    `nn.MultiheadAttention` states them as ``kdim`` and ``vdim``; elsewhere the layers that project queries and keys
    tell.
    """
    for child in module.modules():
        if isinstance(child, nn.MultiheadAttention) and {child.kdim, child.vdim} != {child.embed_dim}:
            return child.kdim, child.vdim
        query, key = _inner(child, QUERY_LAYERS), _inner(child, KEY_LAYERS)
        if query and key and query != key:
            return key, key
    return None


def _inner(module: nn.Module, names: tuple[str, ...]) -> int | None:
    layers = (getattr(module, name, None) for name in names)
    return next((layer.in_features for layer in layers if isinstance(layer, nn.Linear)), None)


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
    """The number of heads that a module or one inside it states; 1 where none does."""
    for child in module.modules():
        for name in HEADS:
            number = getattr(child, name, None)
            if isinstance(number, int) and number > 0:
                return number
    return 1


def is_batch_first(module: nn.Module, contract: Contract) -> bool:
    """Whether inputs are (batch, time, features): as promised, as the layers of torch state it, else yes."""
    if contract.batch_first is not None:
        return contract.batch_first
    if not type(module).__module__.startswith("torch.nn"):
        return True
    stated = (getattr(child, "batch_first", None) for child in module.modules())
    return next((value for value in stated if isinstance(value, bool)), True)
