"""What a cache is: the one that a call returns or fills, and how much it holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


def cache_after(result: Any, name: str, handed: Any, declared: bool) -> Any:
    """The cache after a call: what the module returned of that name or form, or the object that it was handed and
    filled."""
    named = [result.get(key) for key in (name, "past_key_values", "presents", "cache") if isinstance(result, Mapping)]
    named += [getattr(result, name, None)] if not isinstance(result, tuple | list | Mapping) else []
    parts = list(result[1:]) if isinstance(result, tuple | list) else []
    for found in (*named, *parts):
        if found is not None and not isinstance(found, Tensor) and holds(found) >= 2:
            return found
    if handed is not None and holds(handed) >= 2:
        return handed
    lone = [part for part in parts if isinstance(part, Tensor)]
    return (
        lone[-1]
        if len(lone) == 1 and (declared or lone[0].dim() >= 4) and lone[0].shape[-1] != lone[0].shape[-2]
        else None
    )


def holds(cache: Any, depth: int = 4) -> int:
    """How many tensors a cache holds, in containers and in attributes of its objects."""
    leaves = tree_leaves(cache)
    count = sum(isinstance(leaf, Tensor) for leaf in leaves)
    if depth:
        plain = (Tensor, type, nn.Module)
        objects = [leaf for leaf in leaves if hasattr(leaf, "__dict__") and not isinstance(leaf, plain)]
        count += sum(holds(list(vars(leaf).values()), depth - 1) for leaf in objects)
    return count
