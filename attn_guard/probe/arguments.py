"""What each parameter of a ``forward`` is given, by its name.

This is what is known of the names that people and libraries use. A name that is not known here is given features if it
comes second, and else nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attn_guard.contract import Contract
from attn_guard.probe.calling import CACHES, STARTS, as_mask, known_meaning
from attn_guard.probe.dimensions import Dimensions

MEMORY = (
    "memory",
    "context",
    "encoder_hidden_states",
    "mem",
    "encoder_output",
    "encoder_input",
    "enc_output",
    "kv",
    "key_value_states",
    "cond",
)
IDS = ("ids", "idx", "tokens", "indices", "input_ids", "token_ids", "decoder_input_ids")
TARGET = ("tgt", "trg", "target", "y", "decoder_input", "decoder_input_ids")
OWN_KEYS = ("key", "value", "k", "v", "keys", "values", "key_states", "value_states")
VALUES = ("value", "v", "values", "value_states")

FLAT = ("cu_seqlens", "cu_seq_lens")  # beside these, samples lie one after another: (time, width)

Filling = Callable[[nn.Module, Dimensions], Any]


def value_of(
    parameter: inspect.Parameter,
    position: int,
    before: dict[str, Any],
    module: nn.Module,
    contract: Contract,
    sizes: Dimensions,
    *,
    ids: bool,
    masks: int,
    form: int,
) -> Any:
    """What a parameter is given. ``before`` are the values of those that stand before it.

    ``masks`` numbers the ways of filling an undeclared mask, ``form`` the forms that a known name may take.
    """
    name = parameter.name
    if name == contract.segments:
        return torch.ones(sizes.batch, sizes.time, dtype=torch.long, device=sizes.device)
    if is_mask(name, contract):
        return _open_mask(contract, name, sizes, masks)
    if position == 0:
        return sizes.ids(sizes.time) if ids else sizes.features(sizes.time)
    if name in OWN_KEYS and not _is_cross(contract, sizes):
        return next(iter(before.values()))
    if name in VALUES and contract.cross and sizes.memory_width == sizes.value_width:
        return before[list(before)[-1]]
    if name in MEMORY or name in OWN_KEYS or (contract.cross and name not in KNOWN):
        width = sizes.value_width if name in VALUES else sizes.memory_width
        return (
            sizes.ids(sizes.memory) if ids and name != "encoder_hidden_states" else sizes.features(sizes.memory, width)
        )
    if name in KNOWN:
        forms = KNOWN[name]
        return forms[min(form, len(forms) - 1)](module, sizes)
    if name in CACHES or name == contract.cache:
        return None
    if name in STARTS:
        return torch.arange(sizes.time, device=sizes.device) if name in ("input_pos", "cache_position") else 0
    if name in TARGET:
        return sizes.ids(sizes.memory) if ids else sizes.features(sizes.memory)
    if name in IDS or "ids" in name.split("_"):
        return torch.arange(sizes.time, device=sizes.device).expand(sizes.batch, -1)
    if parameter.annotation in (bool, "bool"):
        return False
    return sizes.features(sizes.time) if position == 1 else None


def is_mask(name: str, contract: Contract) -> bool:
    return "mask" in name or name in (contract.masks or {})


def forms_of(name: str) -> int:
    """How many forms there are of what a parameter of this name is given."""
    return len(KNOWN.get(name, (None,)))


def _is_cross(contract: Contract, sizes: Dimensions) -> bool:
    return bool(contract.cross) or {sizes.memory_width, sizes.value_width} != {sizes.width}


def _open_mask(contract: Contract, name: str, sizes: Dimensions, way: int) -> Tensor | None:
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


def _head_dim(module: nn.Module, sizes: Dimensions) -> int:
    stated = getattr(module, "head_dim", None)
    return stated if isinstance(stated, int) and stated > 0 else sizes.width // max(1, sizes.heads)


def _angles(module: nn.Module, sizes: Dimensions) -> Tensor:
    """(time, head_dim / 2) rotary angles, Su et al. 2021, equation 15."""
    head_dim = _head_dim(module, sizes)
    frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
    return (torch.arange(sizes.time)[:, None] * frequencies).to(sizes.device, sizes.dtype)


def _cos_sin(module: nn.Module, sizes: Dimensions) -> tuple[Tensor, Tensor]:
    angles = _angles(module, sizes)
    both = torch.cat((angles, angles), dim=-1)[None, :, : _head_dim(module, sizes)]
    return both.cos(), both.sin()


def _flat_cos_sin(module: nn.Module, sizes: Dimensions) -> tuple[Tensor, Tensor]:
    cosine, sine = _cos_sin(module, sizes)
    return cosine[0], sine[0]


def _complex(module: nn.Module, sizes: Dimensions) -> Tensor:
    angles = _angles(module, sizes).float()
    return torch.polar(torch.ones_like(angles), angles)


def _distances(module: nn.Module, sizes: Dimensions) -> Tensor:
    """(1, 2·time - 1, width): one row of features for every distance between two positions."""
    return sizes.numbers(1, 2 * sizes.time - 1, sizes.width)


def _distances_of_each(module: nn.Module, sizes: Dimensions) -> Tensor:
    return _distances(module, sizes).expand(sizes.batch, -1, -1)


def _limits(module: nn.Module, sizes: Dimensions) -> Tensor:
    """Where the samples of a flat sequence begin and end: there are two."""
    return torch.tensor([0, 2, sizes.time], dtype=torch.int32, device=sizes.device)


def _alibi(module: nn.Module, sizes: Dimensions) -> Tensor:
    """(batch · heads, 1, time): a bias for every key, Press et al. 2022."""
    slopes = 2.0 ** -torch.arange(1, sizes.heads + 1)
    bias = slopes[:, None, None] * torch.arange(sizes.time)
    return bias.repeat(sizes.batch, 1, 1).to(sizes.device, sizes.dtype)


def _times(module: nn.Module, sizes: Dimensions) -> Tensor:
    return torch.full((sizes.batch,), 3, device=sizes.device)


# Names whose value has a form of its own; several forms where libraries differ.
KNOWN: dict[str, tuple[Filling, ...]] = {
    "position_embeddings": (_cos_sin, _flat_cos_sin, _distances, _distances_of_each),
    "rotary_emb": (_cos_sin, _flat_cos_sin),
    "image_rotary_emb": (_flat_cos_sin,),
    "rope": (_cos_sin, _flat_cos_sin),
    "rotary_pos_emb": (_angles, _cos_sin),
    "cos": (lambda module, sizes: _cos_sin(module, sizes)[0], lambda module, sizes: _flat_cos_sin(module, sizes)[0]),
    "sin": (lambda module, sizes: _cos_sin(module, sizes)[1], lambda module, sizes: _flat_cos_sin(module, sizes)[1]),
    "freqs_cis": (_complex, _angles),
    "freqs": (_complex, _angles),
    "cu_seqlens": (_limits,),
    "cu_seq_lens": (_limits,),
    "pos_emb": (_distances, _distances_of_each),
    "relative_position_embeddings": (_distances,),
    "alibi": (_alibi,),
    "residual": (lambda module, sizes: sizes.features(sizes.time),),
    "timestep": (_times,),
    "timesteps": (_times,),
    "H": (lambda module, sizes: sizes.time,),
    "W": (lambda module, sizes: 1,),
    "height": (lambda module, sizes: sizes.time,),
    "width": (lambda module, sizes: 1,),
}
