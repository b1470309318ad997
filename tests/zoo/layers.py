"""Attention layers of libraries other than `transformers`: each class is built and called by the names of what it
takes.

There is no list of classes here, and no library is needed: what cannot be imported is left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import itertools
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.zoo.models import Example, NotBuiltError, brief

# Where each library keeps its attention.
LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "timm": ("layers", "models"),
    "diffusers": ("models",),
    "vit_pytorch": ("",),
    "torchtune": ("modules", "models"),
    "open_clip": ("",),
    "x_transformers": ("",),
}
NAMES = ("attention", "attn", "attender")

WIDTH, HEADS, HEAD_DIM, BATCH, TIME, MEMORY, SIDE = 64, 4, 16, 2, 7, 5, 8

# What constructors take, by name.
_BUILT: Mapping[str, Any] = {
    **dict.fromkeys(("dim", "dims", "query_dim", "embed_dim", "in_dim", "hidden_size", "d_model", "width"), WIDTH),
    **dict.fromkeys(("dim_in", "in_channels", "in_features", "in_chs", "channels", "in_chans", "inner_dim"), WIDTH),
    **dict.fromkeys(("dim_out", "out_dim", "out_channels", "out_features", "hidden_dim", "embedding_dim"), WIDTH),
    **dict.fromkeys(("cross_attention_dim", "kv_dim", "context_dim", "dim_context", "model_dim", "inner_channels"),
    WIDTH),
    **dict.fromkeys(("num_heads", "heads", "n_heads", "num_attention_heads", "n_head", "num_kv_heads"), HEADS),
    **dict.fromkeys(("head_dim", "dim_head", "attention_head_dim", "key_dim", "d_head", "attn_head_dim"), HEAD_DIM),
    **dict.fromkeys(("input_resolution", "resolution", "feat_size", "fmap_size", "img_size", "base_size"), (SIDE,
    SIDE)), **dict.fromkeys(("window_size", "block_size", "win_size"), (4, 4)),
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "output_proj"), "linear"),
    **dict.fromkeys(("eps", "norm_eps"), 1e-6),
    **dict.fromkeys(("out_chs", "input_dim", "output_dim", "mlp_dim"), WIDTH),
    **dict.fromkeys(("h_s", "w_s", "spacial_dim"), SIDE),
    **dict.fromkeys(("groups", "num_slots"), HEADS),
    "num_queries": MEMORY,
    "depth": 1,
    "layer_idx": 0,
    "block_type": "block",
}  # fmt: skip
# Other values, tried where the first ones do not run; they are given also where there is a default.
_OF_IMAGES = ("window_size", "block_size", "feat_size", "input_resolution", "resolution", "fmap_size", "img_size")
_OTHERWISE: tuple[Mapping[str, Any], ...] = (
    {},
    {name: _BUILT[name] for name in _OF_IMAGES},
    {name: _BUILT[name][0] for name in _OF_IMAGES},
)
_TAKEN = frozenset("num_heads heads n_heads head_dim dim_head".split())

# What ``forward`` takes: forms of its features, one after another.
_FORMS: tuple[tuple[int, ...], ...] = (
    (BATCH, TIME, WIDTH),
    (BATCH, WIDTH, SIDE, SIDE),
    (BATCH, SIDE, SIDE, WIDTH),
    (BATCH, SIDE * SIDE, WIDTH),
    (4 * BATCH, SIDE * SIDE // 4, WIDTH),
    (BATCH, 1 + SIDE * SIDE, WIDTH),
    (BATCH, 3, TIME, WIDTH),
    (BATCH, 3, SIDE, SIDE, WIDTH),
    (BATCH, WIDTH, TIME),
)
_MEMORIES = ("context", "memory", "encoder", "cond", "kv", "key", "value", "y", "text", "latents", "clip")
_PLAIN: Mapping[str, Any] = {
    **dict.fromkeys(("h", "height", "H", "w", "width", "W"), SIDE),
    **dict.fromkeys(("size", "hw", "feat_size", "patch_resolution", "shape"), (SIDE, SIDE)),
}


def layers() -> list[str]:
    """``library:module:class`` of every attention class of the libraries that are installed."""
    return [name for library in LIBRARIES for name in _of_library(library)]


def layer(kind: str) -> Example:
    """One of `layers`, with a call that runs. Raises `NotBuiltError`."""
    library, path, name = kind.split(":")
    failures: list[str] = []
    reached = "configuration"
    try:
        cls = getattr(importlib.import_module(f"{library}.{path}"), name)
    except Exception as error:
        raise NotBuiltError(f"configuration: {brief(error)}") from error
    for otherwise in _OTHERWISE:
        try:
            module = built(cls, otherwise)
        except Exception as error:
            failures.append(brief(error))
            continue
        reached = "instance"
        for args in calls(module):
            try:
                with torch.no_grad():
                    module(**args)
            except Exception as error:
                shapes = {name: list(getattr(value, "shape", ())) for name, value in args.items()}
                failures.append(f"{shapes}: {brief(error)}")
                continue
            return Example(kind, module, args)
    raise NotBuiltError(f"{reached}: " + " | ".join(dict.fromkeys(failures)))


@cache
def _of_library(library: str) -> tuple[str, ...]:
    """Found in the source, so that nothing is imported that is not used."""
    spec = importlib.util.find_spec(library)
    if spec is None or not spec.submodule_search_locations:
        return ()
    root = Path(spec.submodule_search_locations[0])
    found = []
    for folder in LIBRARIES[library]:
        for file in sorted((root / folder).rglob("*.py")):
            path = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
            found += [f"{library}:{path}:{name}" for name in _classes(file.read_text(encoding="utf-8"))]
    return tuple(found)


def _classes(source: str) -> Iterator[str]:
    """Names of classes that are called attention and have a ``forward``."""
    for text in ("\n" + source).split("\nclass ")[1:]:
        name = text.partition("(")[0].partition(":")[0].strip()
        if any(word in name.lower() for word in NAMES) and "    def forward(" in text:
            yield name


def built(cls: Any, otherwise: Mapping[str, Any]) -> nn.Module:
    values = {**_BUILT, **otherwise}
    arguments = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in values and (parameter.default is parameter.empty or name in _TAKEN.union(otherwise)):
            arguments[name] = nn.Linear(WIDTH, WIDTH) if values[name] == "linear" else values[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module: nn.Module = cls(**arguments)
        module.eval()  # in some classes it returns nothing
        weights: list[Tensor] = list(module.parameters())
        for weight in weights:  # some begin at zero, which hides all that lies behind
            if not weight.any():
                nn.init.normal_(weight, std=0.2)
    return module


def calls(module: nn.Module) -> Iterator[dict[str, Any]]:
    """Arguments of ``forward`` to try: each form of the features, with and without a memory of another length."""
    parameters = inspect.signature(module.forward).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in variable]
    optional = [p.name for p in parameters if p.default is None and p.name in ("context", "encoder_hidden_states", "y")]
    for extra, form in itertools.product(([], optional) if optional else ([],), _FORMS):
        generator = torch.Generator().manual_seed(0)
        names = [*required, *extra]
        yield {name: _value(name, form, generator, first=place == 0) for place, name in enumerate(names)}


def _value(name: str, form: tuple[int, ...], generator: torch.Generator, *, first: bool) -> Any:
    if name in _PLAIN:
        return _PLAIN[name]
    if "mask" in name:
        return None
    of_memory = not first and len(form) == 3 and form[1] == TIME and name.startswith(_MEMORIES)
    shape = (BATCH, MEMORY, WIDTH) if of_memory else form
    value: Tensor = torch.randn(shape, generator=generator)
    return value
