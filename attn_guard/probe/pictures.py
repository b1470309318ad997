"""Images of the size that a vision model takes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from math import isqrt

import torch
from torch import nn

from attn_guard.probe.calling import Call
from attn_guard.probe.hygiene import device_and_dtype

NAMES = ("img", "imgs", "image", "images", "pixel_values", "video", "sample")
SIDES = ("image_size", "img_size", "input_size", "sample_size")  # what states the side of an image
SMALL = (4, 6)  # where nothing states a side
USUAL = ((32, 32), (64, 64), (224, 224))


def of_pictures(module: nn.Module, required: list[inspect.Parameter], seed: int) -> Iterator[Call]:
    """Calls with one image, for modules of one argument that is called so or meets a 2-D convolution first."""
    if len(required) != 1:
        return
    first = next((child for child in module.modules() if isinstance(child, nn.Conv2d | nn.Linear)), None)
    named = required[0].name in NAMES
    if not named and not isinstance(first, nn.Conv2d):
        return
    device, dtype = device_and_dtype(module)
    channels = first.in_channels if isinstance(first, nn.Conv2d) else 3
    generator = torch.Generator().manual_seed(seed)
    for side in dict.fromkeys(_sides(module, first, named=named)):
        image = torch.randn(2, channels, *side, generator=generator).to(device, dtype)
        how = f"an image of {channels} channels and {side[0]} by {side[1]} pixels"
        if required[0].kind is inspect.Parameter.KEYWORD_ONLY:
            yield Call((), {required[0].name: image}, how)
        else:
            yield Call((image,), {}, how)


def _sides(module: nn.Module, first: nn.Module | None, *, named: bool) -> Iterator[tuple[int, int]]:
    """Heights and widths to try: as stated, by the number of learned positions, a few patches, the usual ones."""
    for owner in (getattr(module, "config", None), *module.modules()):
        for name in SIDES:
            stated = getattr(owner, name, None)
            if isinstance(stated, int) and stated > 0:
                yield stated, stated
            elif isinstance(stated, tuple | list) and len(stated) == 2 and all(isinstance(n, int) for n in stated):
                yield stated[0], stated[1]
    patch = _patch(first)
    if patch > 1:
        for count in _learned_positions(module):
            yield patch * isqrt(count), patch * isqrt(count)
        yield 2 * patch, 3 * patch
    else:
        yield SMALL
    if named or patch > 1:
        yield from USUAL


def _patch(first: nn.Module | None) -> int:
    """The side of a patch: the stride of the first convolution, or what a linear layer takes in as colours."""
    if isinstance(first, nn.Conv2d):
        return int(first.stride[0])
    if isinstance(first, nn.Linear) and first.in_features % 3 == 0:
        side = isqrt(first.in_features // 3)
        return side if 3 * side * side == first.in_features else 1
    return 1


def _learned_positions(module: nn.Module) -> Iterator[int]:
    """Square numbers of patches for which there are learned positions, alone or beside a class token."""
    for name, parameter in module.named_parameters():
        if "pos" in name and parameter.dim() in (2, 3):
            for count in (parameter.shape[-2], parameter.shape[-2] - 1):
                if count > 0 and isqrt(count) ** 2 == count:
                    yield count
